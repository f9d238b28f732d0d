/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * own_sums.cuh - home side of a small combine, which adds rows as they come: parts from other
 * ranks, in the order in which they are listed, and between them this rank's own part, the sum of
 * the token's pairs here. The own part is rounded as if it had travelled, but never stored.
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_OWN_SUMS_CUH
#define EPX_KERNELS_FLOWS_SUMS_OWN_SUMS_CUH

#include "kernels/warp/sum_ring.cuh"

/* What a token's sum is made of; in shared memory, one a warp. */
struct sum_list {
    struct row_list parts; /* of other ranks */
    struct row_list own;   /* the rows of the pairs here, and their weights */
    int32_t num_parts, num_own;
    int32_t own_place; /* how many parts come before the own one */
};

/* Adds a lane's packs, ROWS rows of parts at a time; sum_own(starts, total) adds the own part, or,
 * if that comes first, sets total to it. */
template <typename T, int N, int UNROLL, int ROWS, typename Packs, typename SumOwn>
static __device__ __forceinline__ void add_around_own(const struct sum_list &list, const Packs &at,
                                                      char *out, SumOwn sum_own)
{
    typedef typename T::part Part;
    typename Part::sum total[UNROLL][N];
    const int32_t before = list.num_own ? list.own_place : list.num_parts;

    if (before)
        add_run<Part, N, false, UNROLL, ROWS>(list.parts, 0, before, at, total);
    if (list.num_own)
        sum_own(before == 0, total);
    if (before < list.num_parts)
        add_run<Part, N, false, UNROLL, ROWS>(list.parts, before, list.num_parts, at, total, false);
    store_packs<typename T::row, N, UNROLL>(total, at, out);
}

/* Sums a lane's packs of the own part, rounded as if they had travelled. */
template <typename T, int N, bool WEIGHTED, int UNROLL, typename Packs>
static __device__ __forceinline__ void round_own(const struct sum_list &list, const Packs &at,
                                                 pack<typename T::part, N> rounded[UNROLL])
{
    typename T::row::sum sum[UNROLL][N];

    add_run<typename T::row, N, WEIGHTED, UNROLL, MOST_SUM_ROWS>(list.own, 0, list.num_own, at,
                                                                 sum);
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        round_pack(sum[u], rounded[u]);
}

/* Adds a lane's packs. The own part is summed before the others are loaded: rounded to 16 bits it
 * takes half the registers that its sum does. */
template <typename T, int N, bool WEIGHTED, int UNROLL, typename Packs>
static __device__ __forceinline__ void add_packs(const struct sum_list &list, const Packs &at,
                                                 char *out)
{
    typedef typename T::part Part;
    pack<Part, N> own[UNROLL];

    if (list.num_own)
        round_own<T, N, WEIGHTED, UNROLL>(list, at, own);
    add_around_own<T, N, UNROLL, MOST_SUM_ROWS>(
        list, at, out, [&](bool starts, typename Part::sum(*total)[N]) {
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                add_pack<Part, N, false>(own[u], 1, starts, total[u]);
        });
}

/* Packs of the own part, rounded, that a lane keeps in shared memory while parts are on their way:
 * registers would not do. */
enum { KEPT_PACKS = SUM_UNROLL, KEPT_BYTES = KEPT_PACKS * EPX_WARP * 16 };

/* Sums the own part of packs, KEPT_PACKS a lane, of which a lane may have fewer. */
template <typename T, int N, bool WEIGHTED>
static __device__ __forceinline__ void keep_own(const struct sum_list &list,
                                                const struct bounded_packs &packs,
                                                pack<typename T::part, N> *kept)
{
    const int HERE = KEPT_PACKS / 2;

#pragma unroll 1
    for (int done = 0; done * EPX_WARP <= packs.last; done += HERE) {
        typename T::row::sum sum[HERE][N];

        add_run<typename T::row, N, WEIGHTED, HERE, MOST_SUM_ROWS>(list.own, 0, list.num_own,
                                                                   packs.behind(done), sum);
#pragma unroll
        for (int u = 0; u < HERE; u++)
            round_pack(sum[u], kept[(done + u) * EPX_WARP]);
    }
}

/* Adds the parts of packs, KEPT_PACKS / 2 a lane, to the own one. */
template <typename T, int N>
static __device__ __forceinline__ void add_to_kept(const struct sum_list &list,
                                                   const struct bounded_packs &at,
                                                   const pack<typename T::part, N> *kept, char *out)
{
    const int HERE = KEPT_PACKS / 2;

    add_around_own<T, N, HERE, 1>(
        list, at, out, [&](bool starts, typename T::part::sum(*total)[N]) {
#pragma unroll
            for (int u = 0; u < HERE; u++)
                add_pack<typename T::part, N, false>(kept[u * EPX_WARP], 1, starts, total[u]);
        });
}

/* The whole warp: adds the first packs, of which there is at least one, up to KEPT_PACKS a lane.
 * The own part is summed beside the time that parts are on their way; these are read after await()
 * has returned true. Returns how many it added, -1 if await() did not. */
template <typename T, int N, bool WEIGHTED, typename Await>
static __device__ int64_t add_first_packs(const struct sum_list &list, int64_t packs, char *out,
                                          const Await &await)
{
    const int32_t num = packs < KEPT_PACKS * EPX_WARP ? (int32_t)packs : KEPT_PACKS * EPX_WARP;
    const struct bounded_packs at = {lane_id(), num - 1};
    pack<typename T::part, N> *kept = (pack<typename T::part, N> *)(void *)await.room + lane_id();

    if (list.num_own)
        keep_own<T, N, WEIGHTED>(list, at, kept);
    if (!await())
        return -1;
#pragma unroll 1
    for (int done = 0; done * EPX_WARP < num; done += KEPT_PACKS / 2)
        add_to_kept<T, N>(list, at.behind(done), kept + done * EPX_WARP, out);
    return num;
}

template <typename T, int N, bool WEIGHTED, typename Await>
static __device__ bool add_elements(const struct sum_list &list, int64_t elements, char *out,
                                    const Await &await)
{
    const int UNROLL = SUM_UNROLL / 2;
    const int64_t packs = elements / N;
    int64_t added = 0, first;

    if (packs)
        added = add_first_packs<T, N, WEIGHTED>(list, packs, out, await);
    else if (!await())
        added = -1;
    if (added < 0)
        return false;
    first = added + lane_id();
#pragma unroll 1
    for (; first + (UNROLL - 1) * EPX_WARP < packs; first += EPX_WARP * UNROLL)
        add_packs<T, N, WEIGHTED, UNROLL>(list, aligned_packs{first}, out);
#pragma unroll 1
    for (; first < packs; first += EPX_WARP)
        add_packs<T, N, WEIGHTED, 1>(list, aligned_packs{first}, out);
    return true;
}

/* add_elements for rows of any alignment and number of elements; the own part is summed behind the
 * wait. */
template <typename T, bool WEIGHTED, typename Await>
static __device__ bool add_odd_elements(const struct sum_list &list, int64_t elements, char *out,
                                        const Await &await)
{
    typedef typename T::row Row;
    const int N = PACKED<typename T::part, Row>, UNROLL = 1;

    if (!await())
        return false;
    for_odd_row<Row, Row, N, UNROLL>(
        elements, out,
        [&](const struct shifted_packs &at) { add_packs<T, N, WEIGHTED, UNROLL>(list, at, out); },
        [&](int64_t i) { add_packs<T, 1, WEIGHTED, 1>(list, aligned_packs{i}, out); });
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
    const bool packed = are_packed<Part, Row>(list.parts, list.num_parts, elements, out) &&
                        are_packed<Row, Row>(list.own, list.num_own, elements, out);

    if (list.num_parts + list.num_own > 0) {
        if (packed)
            return weighted ? add_elements<T, N, true>(list, elements, out, await)
                            : add_elements<T, N, false>(list, elements, out, await);
        return weighted ? add_odd_elements<T, true>(list, elements, out, await)
                        : add_odd_elements<T, false>(list, elements, out, await);
    }
    if (!await())
        return false;
    zero_row(out, elements * (int64_t)sizeof(Row));
    return true;
}

#endif
