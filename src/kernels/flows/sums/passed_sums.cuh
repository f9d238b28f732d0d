/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * passed_sums.cuh - the relay's part of combine: what the ranks of the node have of each node row,
 * summed by rank or last choice and rounded once, and the gradients of its pairs' weights.
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_PASSED_SUMS_CUH
#define EPX_KERNELS_FLOWS_SUMS_PASSED_SUMS_CUH

#include "kernels/flows/sums/packed_places.cuh"
#include "kernels/protocol/protocol.cuh"
#include "kernels/wires/relays.cuh"

#ifdef __CUDACC__

/* The last choice of a part plus 1, 0 = it has no sum. */
static __device__ __forceinline__ int32_t kept_of(const struct epx_combine_rows &a, char *part)
{
    return *kept_behind(part, a.rounds, a.backward ? a.plan.shape.top_k : 0);
}

/* A rank's part of a node row, NULL if it has none. */
static __device__ char *part_of_rank(const struct epx_combine_rows &a,
                                     const struct passing &passing, const struct node_row &at,
                                     int32_t index)
{
    char *part = place_for_rank(a.plan, a.rounds, passing, a.plan.incoming, at, index);

    return part && epx_tells_kept(&a.plan.shape) && !kept_of(a, part) ? NULL : part;
}

/* The whole warp: lists the parts of a node row by last choice; returns their number. */
static __device__ int32_t list_by_choice(const struct epx_combine_rows &a,
                                         const struct passing &passing, const struct node_row &at,
                                         int64_t offset, struct row_list &list)
{
    int32_t num = 0;

    for (int32_t first = 0; first < a.plan.nodes.size; first += EPX_WARP) {
        const int32_t index = first + lane_id();
        char *part = index < a.plan.nodes.size ? part_of_rank(a, passing, at, index) : NULL;
        int32_t place = 0;

        for (int32_t other = 0; part && other < a.plan.nodes.size; other++) {
            char *before = part_of_rank(a, passing, at, other);

            place += before && kept_of(a, before) < kept_of(a, part);
        }
        if (part)
            list.row[place] = part + offset;
        num += __popc(__ballot_sync(~0u, part != NULL));
    }
    __syncwarp();
    return num;
}

/* A choice is on one rank only: its gradient is placed, not added. */
static __device__ void pass_weights(const struct epx_combine_rows &a, const struct passing &passing,
                                    const struct node_row &at, char *sum)
{
    const uint16_t *ranks = epx_entry_ranks(entry_of(a.plan, a.comm, at.home, at.row));

    for (int32_t k = lane_id(); k < a.plan.shape.top_k; k += EPX_WARP) {
        char *part = ranks[k] != EPX_ELSEWHERE ? part_of_rank(a, passing, at, ranks[k]) : NULL;

        if (part)
            weights_behind(sum, a.rounds)[k] = weights_behind(part, a.rounds)[k];
    }
}

template <typename T>
static __device__ void
pass_rank_sums(const struct epx_combine_rows &a, const struct epx_round &round,
               const struct message_rows &rows, const struct passing &passing, bool weighted,
               struct row_list &list)
{
    typedef typename T::part Part;
    int64_t length = epx_segment_length(a.rounds.cut, round.segment);
    struct epx_slices slices = epx_slices_of(length, passing.num, num_global_warps());
    int32_t outside = 0;

    for (int64_t i = global_warp(); i < (int64_t)passing.num * slices.num;
         i += num_global_warps()) {
        struct node_row at = find_node_row(a.plan.nodes, rows, i / slices.num);
        struct part part = part_of(slices, (int32_t)(i % slices.num), length);
        char *sum = place_at_relay(a.plan, a.rounds, rows, a.plan.outgoing, at);
        int32_t num = a.plan.shape.by_choice
                          ? list_by_choice(a, passing, at, part.offset, list)
                          : list_ranks(
                                a.plan.nodes,
                                [&](int32_t index) { return part_of_rank(a, passing, at, index); },
                                part.offset, list);

        if (num) /* the home takes no sum of no parts */
            sum_rows<Part, Part>(list, num, 0, part.bytes / (int64_t)sizeof(Part),
                                 sum + part.offset);
        if (round.segment == 0 && part.offset == 0) {
            outside += num && lane_id() == 0;
            if (weighted)
                pass_weights(a, passing, at, sum);
        }
        __syncwarp();
    }
    count_node_rows(a.comm, outside, a.row_bytes);
}

#endif

#endif
