/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * home_sums.cuh - home side of a combine that does more than to add parts by rank: its sums start
 * from biases, or take parts by the last choices of ranks and nodes. EPX_Combine(3) has order and
 * roundings. It stands in for plain_sums in kernels of its own: lists cost more here, and a lane
 * does one pack at a time.
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_HOME_SUMS_CUH
#define EPX_KERNELS_FLOWS_SUMS_HOME_SUMS_CUH

#include "kernels/flows/sums/sums.cuh"

/* A slice of the biases of one token. */
struct bias_rows {
    const char *row[EPX_MAX_BIASES];
    int32_t num;
};

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

/* The parts of a slice of one token in the order of sums, and the node of their home. */
struct ordered_parts {
    const struct row_list &list;
    int32_t num, home;
};

/* Adds the nodes from the r-th part on; the sum of a node other than home is rounded. */
template <typename T, int N>
static __device__ __forceinline__ void add_nodes(const struct ordered_parts &parts, int32_t r,
                                                 const struct aligned_packs &at, bool starts,
                                                 typename T::sum total[N])
{
    typename T::sum own[1][N];

#pragma unroll 1
    for (int32_t end; r < parts.num; r = end, starts = false) {
        const bool rounds = parts.list.node[r] != parts.home;

        end = end_of_node(parts.list, parts.num, r);
        add_run<T, N, false, 1, SUM_ROWS>(parts.list, r, end, at, own);
#pragma unroll
        for (int n = 0; n < N; n++) {
            typename T::sum term = rounds ? T::load(T::store(own[0][n])) : own[0][n];

            total[n] = starts ? term : add(total[n], term);
        }
    }
}

/* out = round(biases, then parts), at least one of them; the parts of the home's own node are added
 * to the biases one by one if they come first. */
template <typename T, typename Row, int N>
static __device__ void sum_packs_from(const struct bias_rows &from,
                                      const struct ordered_parts &parts, int64_t elements,
                                      char *out)
{
    const bool joins = from.num && parts.num && parts.list.node[0] == parts.home;
    const int32_t end = joins ? end_of_node(parts.list, parts.num, 0) : 0;

#pragma unroll 1
    for (int64_t first = lane_id(); first < elements / N; first += EPX_WARP) {
        const struct aligned_packs at = {first};
        typename T::sum total[1][N];

#pragma unroll 1
        for (int32_t b = 0; b < from.num; b++)
            add_pack<Row, N, false>(at.template load<pack<Row, N>, Row>(from.row[b], 0), 1, b == 0,
                                    total[0]);
        if (end)
            add_run<T, N, false, 1, SUM_ROWS>(parts.list, 0, end, at, total, false);
        add_nodes<T, N>(parts, end, at, from.num == 0, total[0]);
        store_packs<Row, N, 1>(total, at, out);
    }
}

struct home_sums {
    template <typename T, typename Places>
    static __device__ void add(const struct epx_combine_rows &a, const Places &places,
                               int64_t token, const struct part &part, int64_t at,
                               struct row_list &list)
    {
        typedef typename T::part Part;
        typedef typename T::row Row;
        const int N = PACKED<Part, Row>;
        const int32_t num = list_in_order(a, places, token, part.offset, list);
        const int32_t home = Places::on_nodes && a.comm.node ? a.comm.node[a.comm.rank] : 0;
        const int64_t elements = part.bytes / (int64_t)sizeof(Part);
        struct bias_rows from = {{}, a.num_biases};
        char *out = a.sums + at;
        bool packed = are_packed<Part, Row>(list, num, elements, out);

        for (int32_t b = 0; b < from.num; b++) {
            from.row[b] = a.biases[b] + at;
            packed = packed && (misalignment(from.row[b]) & (N * sizeof(Row) - 1)) == 0;
        }
        if (num + from.num == 0)
            zero_row(out, elements * (int64_t)sizeof(Row));
        else if (packed)
            sum_packs_from<Part, Row, N>(from, {list, num, home}, elements, out);
        else
            sum_packs_from<Part, Row, 1>(from, {list, num, home}, elements, out);
    }
};

#endif
