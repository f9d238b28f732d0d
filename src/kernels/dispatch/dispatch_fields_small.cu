/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch_fields_small.cu - a dispatch of few rows of several fields. */
#include "kernels/dispatch/flagged_rows.cuh"

int epx_launch_dispatch_fields_small(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    return launch_phase(small_launch(args->banks, stream),
                        dispatch_small<struct flagged_rows<true>>, *args);
}

static const struct epx_loaded loaded(dispatch_small<struct flagged_rows<true>>);
