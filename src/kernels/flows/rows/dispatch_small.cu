/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch_small.cu - a dispatch of few rows (few_rows.cuh) whose slices come with flags. */
#include "kernels/flows/rows/few_rows.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/slice_flags.cuh"

static void (*const kernels[])(struct epx_dispatch_rows) = {dispatch_small<struct flag_wire, false>,
                                                            dispatch_small<struct flag_wire, true>};

int epx_launch_dispatch_small(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    return launch_phase(small_launch(args->banks, stream), kernels[args->fields.num > 1], *args);
}

static const struct epx_loaded loaded(kernels);
