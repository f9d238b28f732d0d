/* SPDX-License-Identifier: BSD-3-Clause */
/* route_dispatch_small.cu - EPX_Route_dispatch of few rows of one field. */
#include "kernels/flows/rows/route_dispatch_small.cuh"
#include "kernels/protocol/load_kernels.cuh"

int epx_launch_route_dispatch_small(const struct epx_route_dispatch *args, EPX_Stream stream)
{
    return launch_route_dispatch_small<false>(*args, stream);
}

static const struct epx_loaded loaded(route_dispatch_small<false>, EPX_SMALL_BYTES);
