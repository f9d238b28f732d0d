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
            weight = grad_of_weight(a, slot, k);
        else if (rank >= 0)
            weight = places.weight_of(token, k);
        a.grad_weights[first + k] = weight;
    }
}

/* Where all parts have come before rows are added. */
template <enum row_loads LOADS> struct parts_are_here {
    static constexpr bool own_first = false;
    static constexpr enum row_loads loads = LOADS;
    static constexpr int unroll = SUM_UNROLL / 2, rows = MOST_SUM_ROWS;

    __device__ __forceinline__ bool operator()() const
    {
        return true;
    }
};

/* Adds the own part, rounded. */
template <typename T, int N, int UNROLL>
static __device__ __forceinline__ void add_own(const typename T::row::sum own[UNROLL][N],
                                               bool starts, typename T::part::sum total[UNROLL][N])
{
    typedef typename T::part Part;

#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            typename Part::sum term = Part::load(Part::store(own[u][n]));

            total[u][n] = starts ? term : add(total[u][n], term);
        }
}

/*
 * Adds a lane's packs. Parts are read after await() has returned true; where
 * own_first is set the own part is summed before, which takes registers, but beside the time that
 * parts are on their way. Returns what await() does.
 */
template <typename T, int N, bool WEIGHTED, int UNROLL, typename Packs, typename Await>
static __device__ __forceinline__ bool add_packs(const struct sum_list &list, const Packs &at,
                                                 char *out, const Await &await)
{
    typedef typename T::part Part;
    typedef typename T::row Row;
    typename Part::sum total[UNROLL][N];
    typename Row::sum own[UNROLL][N];
    const int32_t before = list.num_own ? list.own_place : list.num_parts;

    if (Await::own_first && list.num_own)
        add_run<Row, N, WEIGHTED, UNROLL, Await::rows>(list.own, 0, list.num_own, at, own);
    if (!await())
        return false;
    if (before)
        add_run<Part, N, false, UNROLL, Await::rows>(list.parts, 0, before, at, total);
    if (list.num_own) {
        if (!Await::own_first)
            add_run<Row, N, WEIGHTED, UNROLL, Await::rows>(list.own, 0, list.num_own, at, own);
        add_own<T, N, UNROLL>(own, before == 0, total);
    }
    if (before < list.num_parts)
        add_run<Part, N, false, UNROLL, Await::rows>(list.parts, before, list.num_parts, at, total,
                                                     false);
    store_packs<Row, N, UNROLL>(total, at, out);
    return true;
}

/* The whole warp: adds the first packs, of which there is one, some a lane or one; a lane that has
 * none does the last one again. Returns how many it added, -1 if await() returned false. */
template <typename T, int N, bool WEIGHTED, typename Await>
static __device__ int64_t add_first_packs(const struct sum_list &list, int64_t packs, char *out,
                                          const Await &await)
{
    const int64_t lane = lane_id(), last = packs - 1;

    if (packs >= Await::unroll * EPX_WARP)
        return add_packs<T, N, WEIGHTED, Await::unroll>(list, aligned_packs{lane}, out, await)
                   ? Await::unroll * EPX_WARP
                   : -1;
    return add_packs<T, N, WEIGHTED, 1>(list, aligned_packs{lane < last ? lane : last}, out, await)
               ? EPX_WARP
               : -1;
}

template <typename T, int N, bool WEIGHTED, typename Await>
static __device__ bool add_elements(const struct sum_list &list, int64_t elements, char *out,
                                    const Await &await)
{
    const int UNROLL = Await::unroll;
    const int64_t packs = elements / N;
    int64_t added = 0, first;

    if (Await::own_first && packs)
        added = add_first_packs<T, N, WEIGHTED>(list, packs, out, await);
    else if (!await())
        added = -1;
    if (added < 0)
        return false;
    first = added + lane_id();
#pragma unroll 1
    for (; first + (UNROLL - 1) * EPX_WARP < packs; first += EPX_WARP * UNROLL)
        add_packs<T, N, WEIGHTED, UNROLL>(list, aligned_packs{first}, out,
                                          parts_are_here<Await::loads>());
#pragma unroll 1
    for (; first < packs; first += EPX_WARP)
        add_packs<T, N, WEIGHTED, 1>(list, aligned_packs{first}, out,
                                     parts_are_here<Await::loads>());
    return true;
}

/* add_elements for rows of any alignment and number of elements. */
template <typename T, bool WEIGHTED, typename Await>
static __device__ bool add_odd_elements(const struct sum_list &list, int64_t elements, char *out,
                                        const Await &await)
{
    const int N = PACKED<typename T::part, typename T::row>;
    typedef typename T::row Row;
    const int UNROLL = ODD_UNROLL<Await::loads>;
    const struct inner_packs inner = find_inner_packs<Row, Row, N>(elements, out);

    if (!await())
        return false;
#pragma unroll 1
    for (int64_t first = 0; first < inner.num; first += shifted_packs::packs_of_warp<UNROLL>)
        add_packs<T, N, WEIGHTED, UNROLL>(list, shifted_packs{inner, first + lane_id()}, out,
                                          parts_are_here<Await::loads>());
    for_outer_elements<N>(inner, elements, [&](int64_t i) {
        add_packs<T, 1, WEIGHTED, 1>(list, aligned_packs{i}, out, parts_are_here<Await::loads>());
    });
    return true;
}

/* The whole warp: out = round(part + part + ...); nothing to add gives zeros. Returns what await()
 * does. */
template <typename T, typename Await>
static __device__ bool add_parts(const struct sum_list &list, bool weighted, int64_t elements,
                                 char *out, const Await &await)
{
    typedef typename T::row Row;
    typedef typename T::part Part;
    const int N = PACKED<Part, Row>;
    const bool packed =
        loads_packs<Part, Row, Await::loads>(list.parts, list.num_parts, elements, out) &&
        loads_packs<Row, Row, Await::loads>(list.own, list.num_own, elements, out);

    if (list.num_parts + list.num_own > 0) {
        if (packed)
            return weighted ? add_elements<T, N, true>(list, elements, out, await)
                            : add_elements<T, N, false>(list, elements, out, await);
        if constexpr (Await::loads != PACKS)
            return weighted ? add_odd_elements<T, true>(list, elements, out, await)
                            : add_odd_elements<T, false>(list, elements, out, await);
    }
    if (!await())
        return false;
    zero_row(out, elements * (int64_t)sizeof(Row));
    return true;
}

#endif
