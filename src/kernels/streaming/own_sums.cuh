/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * own_sums.cuh - home side of combine where rows are added as they come: parts from other ranks, in
 * the order of ranks, and between them this rank's own part, the sum of the token's pairs here. The
 * own part is rounded as if it had travelled, but never stored.
 */
#ifndef EPX_KERNELS_STREAMING_OWN_SUMS_CUH
#define EPX_KERNELS_STREAMING_OWN_SUMS_CUH

#include "kernels/combine/sums.cuh"

/* What a token's sum is made of; in shared memory, one a warp. */
struct sum_list {
    struct row_list parts; /* of other ranks */
    struct row_list own;   /* the rows of the pairs here, and their weights */
    int32_t num_parts, num_own;
    int32_t own_place; /* how many parts come before the own one */
};

/* The whole warp: lists the rows of a token's pairs here; in rank-major they share one. */
template <typename T>
static __device__ void list_own(const struct epx_combine_rows &a, int64_t token, int64_t offset,
                                struct sum_list &list)
{
    const int32_t top_k = a.plan.shape.top_k;
    int32_t num = 0;

    for (int32_t k = lane_id(); k - lane_id() < top_k; k += EPX_WARP) {
        const bool here = k < top_k && a.plan.pair_rank[token * top_k + k] == a.comm.rank;
        const int64_t slot = here ? a.plan.view.slots[token * top_k + k] : 0;
        const uint32_t lanes = __ballot_sync(~0u, here);
        const int32_t place = num + __popc(lanes & lanes_below());

        if (here) {
            list.own.row[place] =
                (char *)(uintptr_t)a.rows + in_row<T>(slot * a.rounds.cut.row_bytes + offset);
            list.own.weight[place] = a.weights && !a.backward ? a.weights[slot] : 1;
        }
        num += __popc(lanes);
    }
    if (lane_id() == 0)
        list.num_own = a.plan.shape.rank_major && num > 1 ? 1 : num;
    __syncwarp();
}

/* The whole warp: gradients of the weights of a token's pairs; of pairs here from a.weights. */
template <typename Places>
static __device__ void take_all_weights(const struct epx_combine_rows &a, const Places &places,
                                        int64_t token)
{
    const int64_t top_k = a.plan.shape.top_k, first = token * top_k;

    for (int64_t k = lane_id(); k < top_k; k += EPX_WARP) {
        const int32_t rank = a.plan.pair_rank[first + k];
        const int64_t slot = a.plan.view.slots[first + k];
        float weight = 0;

        if (rank == a.comm.rank)
            weight = a.weights[a.plan.shape.rank_major ? slot * top_k + k : slot];
        else if (rank >= 0)
            weight = places.weight_of(token, k);
        a.grad_weights[first + k] = weight;
    }
}

/* Own part of the packs first, first + 32, ..., rounded. */
template <typename T, int N, bool WEIGHTED, int UNROLL>
static __device__ __forceinline__ void add_own(const struct sum_list &list, int64_t first,
                                               bool starts, typename T::part::sum total[UNROLL][N])
{
    typedef typename T::part Part;
    typename T::row::sum own[UNROLL][N];

    add_run<typename T::row, N, WEIGHTED, UNROLL>(list.own, 0, list.num_own, first, own);
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            typename Part::sum term = Part::load(Part::store(own[u][n]));

            total[u][n] = starts ? term : add(total[u][n], term);
        }
}

template <typename T, int N, bool WEIGHTED, int UNROLL>
static __device__ __forceinline__ void add_packs(const struct sum_list &list, int64_t first,
                                                 char *out)
{
    typedef typename T::part Part;
    typename Part::sum total[UNROLL][N];
    const int32_t before = list.num_own ? list.own_place : list.num_parts;

    if (before)
        add_run<Part, N, false, UNROLL>(list.parts, 0, before, first, total);
    if (list.num_own)
        add_own<T, N, WEIGHTED, UNROLL>(list, first, before == 0, total);
    if (before < list.num_parts)
        add_run<Part, N, false, UNROLL>(list.parts, before, list.num_parts, first, total, false);
    store_packs<typename T::row, N, UNROLL>(total, first, out);
}

template <typename T, int N, bool WEIGHTED>
static __device__ void add_elements(const struct sum_list &list, int64_t elements, char *out)
{
    int64_t packs = elements / N, first = lane_id();

#pragma unroll 1
    for (; first + (SUM_UNROLL - 1) * EPX_WARP < packs; first += EPX_WARP * SUM_UNROLL)
        add_packs<T, N, WEIGHTED, SUM_UNROLL>(list, first, out);
#pragma unroll 1
    for (; first < packs; first += EPX_WARP)
        add_packs<T, N, WEIGHTED, 1>(list, first, out);
}

/* The whole warp: out = round(part + part + ...); nothing to add gives zeros. */
template <typename T>
static __device__ void add_parts(const struct sum_list &list, bool weighted, int64_t elements,
                                 char *out)
{
    typedef typename T::row Row;
    typedef typename T::part Part;
    const int N = PACKED<Part, Row>;
    bool packed = are_packed<Part, Row>(list.parts, list.num_parts, elements, out) &&
                  are_packed<Row, Row>(list.own, list.num_own, elements, out);

    if (list.num_parts + list.num_own == 0)
        zero_row(out, elements * (int64_t)sizeof(Row));
    else if (packed && weighted)
        add_elements<T, N, true>(list, elements, out);
    else if (packed)
        add_elements<T, N, false>(list, elements, out);
    else if (weighted)
        add_elements<T, 1, true>(list, elements, out);
    else
        add_elements<T, 1, false>(list, elements, out);
}

#endif
