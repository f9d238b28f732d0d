/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch_small.cu - a dispatch of few rows of one field, with flags. */
#include "kernels/dispatch/flagged_rows.cuh"

int epx_launch_dispatch_small(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    return launch_phase(small_launch(args->banks, stream),
                        dispatch_small<struct flagged_rows<false>>, *args);
}

static const struct epx_loaded loaded(dispatch_small<struct flagged_rows<false>>);
