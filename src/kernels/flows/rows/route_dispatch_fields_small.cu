/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_dispatch_fields_small.cu - EPX_Route_dispatch_fields of few rows of several fields.
 * A file of its own: two such kernels in one share functions that are inlined here.
 */
#include "kernels/flows/rows/route_dispatch_small.cuh"
#include "kernels/protocol/load_kernels.cuh"

int epx_launch_route_dispatch_fields_small(const struct epx_route_dispatch *args, EPX_Stream stream)
{
    return launch_route_dispatch_small<true>(*args, stream);
}

static const struct epx_loaded loaded(route_dispatch_small<true>, EPX_SMALL_BYTES);
