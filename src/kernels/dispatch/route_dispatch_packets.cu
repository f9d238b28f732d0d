/* SPDX-License-Identifier: BSD-3-Clause */
/* route_dispatch_packets.cu - EPX_Route_dispatch of few rows of one field, in packets. */
#include "kernels/dispatch/route_dispatch_small.cuh"

int epx_launch_route_dispatch_packets(const struct epx_route_dispatch *args, EPX_Stream stream)
{
    return launch_route_dispatch_small<struct rows_in_packets>(*args, stream);
}

static const struct epx_loaded loaded(route_dispatch_small<struct rows_in_packets>,
                                      EPX_SMALL_BYTES);
