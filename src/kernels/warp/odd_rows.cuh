/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * odd_rows.cuh - packs of rows of any alignment, so that their sum is stored in aligned packs. A
 * lane loads the aligned words that its packs begin in, has those behind them from the lanes behind
 * it, and shifts the two into place. The elements at either end of a row are not loaded so, lest a
 * word reach out of it.
 */
#ifndef EPX_KERNELS_WARP_ODD_ROWS_CUH
#define EPX_KERNELS_WARP_ODD_ROWS_CUH

#include "kernels/warp/lanes.cuh"

/* The packs inside of a row: the elements before the first, and their number. */
struct inner_packs {
    int32_t head;
    int64_t num;
};

/* The inner packs, of N elements, so that they are aligned in `out`, whose elements are To. T is
 * the shortest type of which rows are loaded: at either end 16 bytes of such a row are left. */
template <typename T, typename To, int N>
static __device__ __forceinline__ struct inner_packs find_inner_packs(int64_t elements,
                                                                      const char *out)
{
    const uint32_t margin = 16 / sizeof(T);
    const uint32_t odd = (uint32_t)((uintptr_t)out / sizeof(To)) % N;
    const int32_t head = (int32_t)(margin + (N - (odd + margin) % N) % N);
    const int64_t num = (elements - head - (int32_t)margin) / N;

    return {num > 0 ? head : 0, num > 0 ? num : 0};
}

/* The pack that begins `odd` bytes into a, and ends in b. */
template <typename Pack>
static __device__ __forceinline__ Pack shift_pack(const Pack &a, const Pack &b, uint32_t odd)
{
    const int WORDS = sizeof(Pack) / sizeof(uint32_t);
    uint32_t word[2 * WORDS];
    Pack shifted;

    memcpy(word, &a, sizeof(a));
    memcpy(word + WORDS, &b, sizeof(b));
#pragma unroll
    for (int i = 0; WORDS > 2 && i < WORDS + 2; i++)
        word[i] = odd & 8 ? word[i + 2] : word[i];
#pragma unroll
    for (int i = 0; i <= WORDS; i++)
        word[i] = odd & 4 ? word[i + 1] : word[i];
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        word[i] = __funnelshift_r(word[i], word[i + 1], odd % 4 * 8);
    memcpy(&shifted, word, sizeof(shifted));
    return shifted;
}

/* The pack behind a lane's own: that of the lane behind, of the last lane what the first one has
 * `ahead`. */
template <typename Pack>
static __device__ __forceinline__ Pack pack_behind(const Pack &own, const Pack &ahead)
{
    const int WORDS = sizeof(Pack) / sizeof(uint32_t);
    uint32_t word[WORDS], first[WORDS];
    Pack behind;

    memcpy(word, &own, sizeof(own));
    memcpy(first, &ahead, sizeof(ahead));
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        word[i] = __shfl_sync(~0u, lane_id() ? word[i] : first[i], (lane_id() + 1) % EPX_WARP);
    memcpy(&behind, word, sizeof(behind));
    return behind;
}

/* A lane's packs of rows of any alignment: first, first + 32, ...; the whole warp has the packs
 * from that of its first lane on, but for the last lane's last, which has none behind it. */
struct shifted_packs {
    struct inner_packs inner;
    int64_t first;

    template <int UNROLL> static constexpr int packs_of_warp = UNROLL *EPX_WARP - 1;

    /* Where the first inner pack of a row begins. */
    template <typename T> __device__ __forceinline__ const char *begin_of(const char *row) const
    {
        return row + inner.head * (int64_t)sizeof(T);
    }

    /* The word that a pack begins in; of packs that there are not the one that the last pack ends
     * in. */
    template <typename Pack, typename T>
    __device__ __forceinline__ Pack load(const char *row, int u) const
    {
        const char *from = begin_of<T>(row);
        const int64_t at = first + u * EPX_WARP;

        from -= (uintptr_t)from % sizeof(Pack);
        return ((const Pack *)(const void *)from)[at < inner.num ? at : inner.num];
    }

    template <typename T, int UNROLL, typename Pack>
    __device__ __forceinline__ Pack place(const char *row, const Pack loaded[UNROLL], int u) const
    {
        const Pack behind = pack_behind(loaded[u], loaded[(u + 1) % UNROLL]);
        const uintptr_t from = (uintptr_t)begin_of<T>(row);

        return shift_pack(loaded[u], behind, (uint32_t)(from % sizeof(Pack)));
    }

    template <typename To, int UNROLL, typename Pack>
    __device__ __forceinline__ void store(char *out, const Pack &pack, int u) const
    {
        const int64_t at = first + u * EPX_WARP;

        if (at < inner.num && (u + 1 < UNROLL || lane_id() + 1 < EPX_WARP))
            ((Pack *)(void *)((To *)(void *)out + inner.head))[at] = pack;
    }
};

/* The whole warp: calls sum_packs(packs) until all inner packs of a sum have been a lane's, then
 * sum_element(i) for all other elements, one a lane. T, To and N as for find_inner_packs. */
template <typename T, typename To, int N, int UNROLL, typename SumPacks, typename SumElement>
static __device__ __forceinline__ void for_odd_row(int64_t elements, const char *out,
                                                   SumPacks sum_packs, SumElement sum_element)
{
    const struct inner_packs inner = find_inner_packs<T, To, N>(elements, out);
    const int64_t within = inner.num * N;

#pragma unroll 1
    for (int64_t first = 0; first < inner.num; first += shifted_packs::packs_of_warp<UNROLL>)
        sum_packs(shifted_packs{inner, first + lane_id()});
#pragma unroll 1
    for (int64_t i = lane_id(); i < elements - within; i += EPX_WARP)
        sum_element(i < inner.head ? i : i + within);
}

#endif
