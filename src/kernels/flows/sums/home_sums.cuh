/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * home_sums.cuh - home side of combine: a token's rows from the stage into its sum, by rank; or by
 * node and rank, or by the last choices of nodes and ranks, and from biases on, where lists cost
 * more and a lane does one pack at a time. EPX_Combine(3) has order and roundings.
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_HOME_SUMS_CUH
#define EPX_KERNELS_FLOWS_SUMS_HOME_SUMS_CUH

#include "kernels/flows/sums/sums.cuh"

/* Whether the sums of a combine are those of parts by rank alone. */
template <typename Places>
static __device__ __forceinline__ bool adds_by_rank(const struct epx_combine_rows &a)
{
    return !a.num_biases && !a.plan.shape.by_choice && !(Places::on_nodes && a.comm.node);
}

/* The whole warp: lists the parts of a token by rank; returns their number. */
template <typename Places>
static __device__ int32_t list_parts(const struct epx_combine_rows &a, const Places &places,
                                     int64_t token, int64_t offset, struct row_list &list)
{
    const int32_t num = a.plan.token_num[token];
    int32_t kept = 0;

    for (int32_t first = 0; first < num; first += EPX_WARP) {
        const int32_t i = first + lane_id();
        const bool keeps = i < num && places.has_part(token, i);
        const uint32_t lanes = __ballot_sync(~0u, keeps);

        if (keeps)
            list.row[kept + __popc(lanes & lanes_below())] =
                places.part_of_token(token, i) + offset;
        kept += __popc(lanes);
    }
    __syncwarp();
    return kept;
}

/* Where in the order of sums the part of a rank comes: the less the earlier. */
static __device__ int64_t order_of(const struct epx_combine_rows &a, const int32_t *node,
                                   int64_t token, int32_t rank)
{
    const int32_t *ranks = a.plan.pair_rank + token * a.plan.shape.top_k;
    int64_t of_rank = 0, of_node = 0;

    if (!a.plan.shape.by_choice)
        return node ? a.comm.place[rank] : rank;
    for (int32_t k = 0; k < a.plan.shape.top_k; k++) {
        if (ranks[k] < 0)
            continue;
        of_rank = ranks[k] == rank ? k : of_rank;
        of_node = !node || node[ranks[k]] == node[rank] ? k : of_node;
    }
    return of_node << 32 | of_rank;
}

/* The place of a token's i-th row among its rows that have a part. */
template <typename Places>
static __device__ int32_t place_in_order(const struct epx_combine_rows &a, const Places &places,
                                         const int32_t *node, int64_t token, int32_t i)
{
    const int32_t *rank = a.plan.token_rank + token * a.plan.most_rows;
    const int64_t own = order_of(a, node, token, rank[i]);
    int32_t place = 0;

    for (int32_t other = 0; other < a.plan.token_num[token]; other++)
        place += places.has_part(token, other) && order_of(a, node, token, rank[other]) < own;
    return place;
}

/* The whole warp: lists the parts of a token in the order of sums; returns their number. */
template <typename Places>
static __device__ int32_t list_in_order(const struct epx_combine_rows &a, const Places &places,
                                        int64_t token, int64_t offset, struct row_list &list)
{
    const int32_t *rank = a.plan.token_rank + token * a.plan.most_rows;
    const int32_t *node = Places::on_nodes ? a.comm.node : NULL;
    const int32_t num = a.plan.token_num[token];
    int32_t kept = 0;

    for (int32_t first = 0; first < num; first += EPX_WARP) {
        const int32_t i = first + lane_id();
        const bool keeps = i < num && places.has_part(token, i);

        if (keeps) {
            const int32_t place = place_in_order(a, places, node, token, i);

            list.row[place] = places.part_of_token(token, i) + offset;
            list.node[place] = node ? node[rank[i]] : 0;
        }
        kept += __popc(__ballot_sync(~0u, keeps));
    }
    __syncwarp();
    return kept;
}

template <typename Places>
static __device__ void take_weights(const struct epx_combine_rows &a, const Places &places,
                                    int64_t token)
{
    int64_t first = token * a.plan.shape.top_k;

    for (int32_t k = lane_id(); k < a.plan.shape.top_k; k += EPX_WARP)
        a.grad_weights[first + k] =
            a.plan.pair_rank[first + k] >= 0 ? places.weight_of(token, k) : 0;
}

/* The whole warp: the sum of a slice of a token that adds_by_rank does not hold for. */
template <typename T, typename Places>
static __device__ void add_in_order(const struct epx_combine_rows &a, const Places &places,
                                    int64_t token, const struct part &part, int64_t at,
                                    struct row_list &list)
{
    const int32_t num = list_in_order(a, places, token, part.offset, list);
    const int32_t home = Places::on_nodes && a.comm.node ? a.comm.node[a.comm.rank] : 0;
    struct bias_rows from = {{}, a.num_biases};

    for (int32_t b = 0; b < from.num; b++)
        from.row[b] = a.biases[b] + at;
    sum_nodes<typename T::part, typename T::row>(
        from, {list, num, home}, part.bytes / (int64_t)sizeof(typename T::part), a.sums + at);
}

/* The whole warp: adds the parts of a slice of a token to where it lies in the sums. */
template <typename T, typename Places>
static __device__ __forceinline__ void
add_token(const struct epx_combine_rows &a, const Places &places, int64_t token,
          const struct part &part, int64_t at, struct row_list &list)
{
    typedef typename T::part Part;

    if (adds_by_rank<Places>(a))
        sum_rows<Part, typename T::row>(list, list_parts(a, places, token, part.offset, list), 0,
                                        part.bytes / (int64_t)sizeof(Part), a.sums + at);
    else
        add_in_order<T>(a, places, token, part, at, list);
}

/* Home side: sums the rows of the round's tokens; a warp does one slice of a token at a time. */
template <typename T, typename Places>
static __device__ void sum_tokens(const struct epx_combine_rows &a, const Places &places,
                                  bool weighted, struct row_list &list)
{
    const struct epx_round &round = places.round;
    const struct epx_segments &cut = a.rounds.cut;
    int64_t end = round.end_token < a.num_tokens ? round.end_token : a.num_tokens;
    int64_t length = epx_segment_length(cut, round.segment);
    struct epx_slices slices = epx_slices_of(length, end - round.first_token, num_global_warps());

    for (int64_t i = global_warp(); i < (end - round.first_token) * slices.num;
         i += num_global_warps()) {
        int64_t t = round.first_token + i / slices.num;
        struct part part = part_of(slices, (int32_t)(i % slices.num), length);
        int64_t at =
            in_row<T>(t * cut.row_bytes + epx_segment_offset(cut, round.segment) + part.offset);

        add_token<T>(a, places, t, part, at, list);
        if (weighted && a.grad_weights && round.segment == 0 && part.offset == 0)
            take_weights(a, places, t);
        __syncwarp();
    }
}

#endif
