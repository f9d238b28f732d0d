/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * passes.cuh - the relay's part of dispatch: node rows that came, with their weights, to the ranks
 * of the node that need them.
 */
#ifndef EPX_KERNELS_DISPATCH_PASSES_CUH
#define EPX_KERNELS_DISPATCH_PASSES_CUH

#include "kernels/dispatch/packs.cuh"
#include "kernels/protocol/relays.cuh"

#ifdef __CUDACC__

static __device__ void pass_tokens(const struct epx_dispatch_rows &a, const struct round &round,
                                   const struct message_rows &rows, const struct passing &passing,
                                   struct row_list &list)
{
    bool weighted = a.comm.state->weighted && round.segment == 0;
    int64_t bytes = weighted ? a.rounds.pitch
                             : epx_round_up(epx_segment_length(a.rounds.cut, round.segment), 16);
    struct epx_slices slices = epx_slices_of(bytes, passing.num, num_global_warps());

    for (int64_t i = global_warp(); i < (int64_t)passing.num * slices.num;
         i += num_global_warps()) {
        struct node_row at = find_node_row(a.plan.nodes, rows, i / slices.num);
        struct part part = part_of(slices, (int32_t)(i % slices.num), bytes);
        int32_t num = list_ranks(
            a.plan.nodes,
            [&](int32_t index) {
                return place_for_rank(a.plan, a.rounds, passing, a.plan.outgoing, at, index);
            },
            part.offset, list);

        store_row(place_at_relay(a.plan, a.rounds, rows, a.plan.incoming, at) + part.offset, list,
                  num, part.bytes);
        __syncwarp();
    }
}

#endif

#endif
