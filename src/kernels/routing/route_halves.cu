/* SPDX-License-Identifier: BSD-3-Clause */
/* route_halves.cu - a routing (route_tokens.cuh) in blocks of which two fit on a multiprocessor. */
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/routing/route_tokens.cuh"

int epx_launch_route_halves(const struct epx_route_tokens *args, EPX_Stream stream)
{
    return launch_routing<HALF_THREADS>(*args, stream);
}

static const struct epx_loaded loaded(route_tokens<HALF_THREADS>, HALF_BYTES, true);
