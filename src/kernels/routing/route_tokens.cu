/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_tokens.cu - launches a routing (route_tokens.cuh), in whole blocks where it may have no
 * halves of them, or these have too little memory. The two kernels are compiled apart: in one file
 * the compiler calls what it puts in line here, and spills registers.
 */
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/routing/route_tokens.cuh"

/* Whether blocks of half the threads have memory for all parts. The parts of no rank are larger
 * than those that are looked at, so all ranks find the same. */
static bool halves_fit(const struct epx_route_tokens *args)
{
    const int32_t warps = HALF_THREADS / EPX_WARP, ranks = args->comm.num_ranks;
    struct epx_route_tokens most = *args;
    struct shared_parts parts;

    most.plan.shape.num_local = (most.plan.shape.num_experts + ranks - 1) / ranks;
    parts = parts_of(&most, warps);
    return parts.warps == warps && parts.matrix >= 0 && parts.base && parts.from && parts.owners &&
           parts.lists && bytes_of_parts(parts) <= HALF_BYTES;
}

int epx_launch_route_tokens(const struct epx_route_tokens *args, EPX_Stream stream)
{
    struct epx_route_tokens halves = *args;

    halves.comm.blocks = args->halves;
    if (args->halves && halves_fit(&halves))
        return epx_launch_route_halves(&halves, stream);
    return launch_routing<ROUTING_THREADS>(*args, stream);
}

static const struct epx_loaded loaded(route_tokens<ROUTING_THREADS>, MOST_ROUTING_BYTES);
