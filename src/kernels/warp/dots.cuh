/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dots.cuh - combine backward, what one warp does to 1024 elements of a row: multiply them by a
 * weight, and their dot product with those of another row. Dot products add 256 lanes, of four
 * elements each, as a binary tree; blocks of 1024 in order: see EPX_Combine_backward(3).
 */
#ifndef EPX_KERNELS_WARP_DOTS_CUH
#define EPX_KERNELS_WARP_DOTS_CUH

#include "kernels/warp/copy_row.cuh"
#include "kernels/warp/pack_types.cuh"
#include "kernels/warp/ptx.cuh"

#include <type_traits>

enum {
    SUM_LANES = 256,
    BLOCK_ELEMENTS = EPX_DOT_ELEMENTS,
    LANE_ELEMENTS = BLOCK_ELEMENTS / SUM_LANES
};

/* A pack as a thread keeps it: eight elements of two bytes are one word, where the compiler would
 * take eight registers. */
template <typename T, int N> using kept_pack = std::conditional_t<N == 8, uint4, pack<T, N>>;

template <typename T, int N>
static __device__ __forceinline__ pack<T, N> pack_of(const kept_pack<T, N> &kept)
{
    pack<T, N> data;

    memcpy(&data, &kept, sizeof(data));
    return data;
}

/*
 * What a thread has of a block of elements, loaded N at a time. Element e of the block belongs to
 * lane e % 256. A thread has the same lanes in each 256 elements: its pack p begins at lane
 * (p * 32 + thread) * N.
 */
template <typename T, int N> struct block_part {
    static constexpr int PACKS = SUM_LANES / (EPX_WARP * N);
    kept_pack<T, N> data[LANE_ELEMENTS][PACKS];

    __device__ __forceinline__ pack<T, N> at(int j, int p) const
    {
        return pack_of<T, N>(data[j][p]);
    }

    __device__ __forceinline__ void widen(int j, int p, typename T::sum wide[N]) const
    {
        widen_pack(at(j, p), wide);
    }
};

/* What a thread keeps of a block of a gradient that goes to several slots: widened, which is done
 * once for all slots then, or, where it is stored as it is, the packs themselves. */
template <typename T, int N> struct kept_block {
    static constexpr int PACKS = block_part<T, N>::PACKS;
    typename T::sum data[LANE_ELEMENTS][PACKS][N];
};

/* Whether sums of elements are kept in another type. */
template <typename T> static constexpr bool widens = sizeof(T) != sizeof(typename T::sum);

/* How a gradient that goes to several slots is kept. */
template <typename T, int N>
using kept_grad = std::conditional_t<widens<T>, kept_block<T, N>, block_part<T, N>>;

/* Read as a block_part is: a kept_block that has been widened, or has not. */
template <typename T, int N, bool WIDE> struct kept_part {
    const struct kept_block<T, N> &kept;

    __device__ __forceinline__ pack<T, N> at(int j, int p) const
    {
        pack<T, N> data;

        memcpy(&data, kept.data[j][p], sizeof(data));
        return data;
    }

    __device__ __forceinline__ void widen(int j, int p, typename T::sum wide[N]) const
    {
        if constexpr (WIDE) {
#pragma unroll
            for (int n = 0; n < N; n++)
                wide[n] = kept.data[j][p][n];
        } else {
            widen_pack(at(j, p), wide);
        }
    }
};

/* Keeps a block, widened or not. */
template <typename T, int N>
static __device__ __forceinline__ void keep_block(const struct block_part<T, N> &part, bool wide,
                                                  struct kept_block<T, N> &kept)
{
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++)
#pragma unroll
        for (int p = 0; p < part.PACKS; p++) {
            const pack<T, N> data = part.at(j, p);

            if (wide)
                widen_pack(data, kept.data[j][p]);
            else
                memcpy(kept.data[j][p], &data, sizeof(data));
        }
}

/* Elements of a row of so many in the block that begins at first. */
static __device__ __forceinline__ int32_t elements_of_block(int64_t elements, int64_t first)
{
    return elements - first < BLOCK_ELEMENTS ? (int32_t)(elements - first) : BLOCK_ELEMENTS;
}

/* Where a thread's pack p begins in the j-th 256 elements of a block, behind its first pack. */
template <int N> static constexpr __host__ __device__ int32_t step_of(int j, int p)
{
    return j * SUM_LANES + p * EPX_WARP * N;
}

/* Where this thread's first pack begins. */
template <int N> static __device__ __forceinline__ int32_t first_of_thread()
{
    return lane_id() * N;
}

/* A thread has those packs whose step is less than this. Of a whole block it has all; where the
 * compiler knows that, nothing is compared. */
template <int N> static __device__ __forceinline__ int32_t end_of_steps(int32_t elements)
{
    return elements == BLOCK_ELEMENTS ? BLOCK_ELEMENTS : elements - first_of_thread<N>();
}

/* Loads zeros where the row has ended: they add nothing. */
template <typename T, int N>
static __device__ __forceinline__ void load_block(const T *block, int32_t elements,
                                                  struct block_part<T, N> &part)
{
    const T *first = block + first_of_thread<N>();
    const int32_t end = end_of_steps<N>(elements);

#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++)
#pragma unroll
        for (int p = 0; p < part.PACKS; p++) {
            part.data[j][p] = {};
            if (step_of<N>(j, p) < end)
                part.data[j][p] =
                    *(const kept_pack<T, N> *)(const void *)(first + step_of<N>(j, p));
        }
}

/*
 * The lanes are summed as a binary tree: lane l adds lane l + w, for w = 128, 64, ... 1. A sum does
 * not depend on the order of its two terms. First the packs of a thread are added. Then its N sums
 * are added over the threads: each thread hands half of its sums to another and keeps half, until
 * it has one, its share of the sum.
 */
template <typename Sum, int N, int PACKS>
static __device__ __forceinline__ Sum share_of_lanes(Sum lane[PACKS][N])
{
#pragma unroll
    for (int w = PACKS / 2; w; w /= 2)
#pragma unroll
        for (int p = 0; p < w; p++)
#pragma unroll
            for (int n = 0; n < N; n++)
                lane[p][n] = add(lane[p][n], lane[p + w][n]);
#pragma unroll
    for (int half = N / 2, w = EPX_WARP / 2; half; half /= 2, w /= 2) {
        const bool upper = lane_id() & w;

#pragma unroll
        for (int n = 0; n < half; n++) {
            Sum given = upper ? lane[0][n] : lane[0][n + half];
            Sum kept = upper ? lane[0][n + half] : lane[0][n];

            lane[0][n] = add(kept, __shfl_xor_sync(~0u, given, w));
        }
    }
    return lane[0][0];
}

/* How far from a thread the one is whose share it adds in a stage of the five that are left: first
 * threads that have the same of N sums, then those that have others. */
template <int N> static constexpr __host__ __device__ int width_of_stage(int stage)
{
    int same = EPX_WARP / 2 / N, other = EPX_WARP / 2;

    for (; stage && same; stage--)
        same /= 2;
    return same ? same : other >> stage;
}

enum { STAGES = 5 };

/* The sum of the threads' shares, for every thread. */
template <typename Sum, int N> static __device__ __forceinline__ Sum sum_shares(Sum share)
{
#pragma unroll
    for (int s = 0; s < STAGES; s++)
        share = add(share, __shfl_xor_sync(~0u, share, width_of_stage<N>(s)));
    return share;
}

enum { SUMS_AT_ONCE = 3 };

/* Which of three sums sum_three_shares gives to this thread. */
template <int N> static __device__ __forceinline__ int32_t sum_of_thread()
{
    if (lane_id() & width_of_stage<N>(1))
        return 2;
    return lane_id() & width_of_stage<N>(0) ? 1 : 0;
}

/* Whether no thread before this one gets the same of three sums. */
template <int N> static __device__ __forceinline__ bool is_first_with_sum()
{
    return lane_id() == 0 || lane_id() == width_of_stage<N>(0) || lane_id() == width_of_stage<N>(1);
}

/* As sum_shares, of three sums, of which each thread gets one: in the first stage it keeps one of
 * the first two, in the second that one or the third, and hands over what it does not keep. */
template <typename Sum, int N>
static __device__ __forceinline__ Sum sum_three_shares(const Sum share[SUMS_AT_ONCE])
{
    const int first = width_of_stage<N>(0), second = width_of_stage<N>(1);
    const bool has_second = lane_id() & first, has_third = lane_id() & second;
    Sum of_two = add(has_second ? share[1] : share[0],
                     __shfl_xor_sync(~0u, has_second ? share[0] : share[1], first));
    Sum third = add(share[2], __shfl_xor_sync(~0u, share[2], first));
    Sum sum =
        add(has_third ? third : of_two, __shfl_xor_sync(~0u, has_third ? of_two : third, second));

#pragma unroll
    for (int s = 2; s < STAGES; s++)
        sum = add(sum, __shfl_xor_sync(~0u, sum, width_of_stage<N>(s)));
    return sum;
}

/* This thread's share of the dot product of a block of a gradient with another; use(step, wide)
 * gets each pack of the gradient too, widened. The sum of a lane begins with its first product, not
 * with +0 as in the reference: a share of -0 in place of +0 may come of it, so callers add the
 * shares of a row to +0. */
template <typename T, int N, typename Grad, typename Use>
static __device__ __forceinline__ typename T::sum
dot_of_block(const Grad &grad, const struct block_part<T, N> &forward, Use use)
{
    const int PACKS = block_part<T, N>::PACKS;
    typename T::sum lane[PACKS][N];

#pragma unroll
    for (int p = 0; p < PACKS; p++)
#pragma unroll
        for (int j = 0; j < LANE_ELEMENTS; j++) {
            typename T::sum of_grad[N], of_forward[N];

            grad.widen(j, p, of_grad);
            forward.widen(j, p, of_forward);
            use(step_of<N>(j, p), of_grad);
#pragma unroll
            for (int n = 0; n < N; n++) {
                const typename T::sum product = mul(of_grad[n], of_forward[n]);

                lane[p][n] = j ? add(lane[p][n], product) : product;
            }
        }
    return share_of_lanes<typename T::sum, N, PACKS>(lane);
}

/* Stores a pack to memory; one of less than 16 bytes also to shared memory. */
template <typename Pack>
static __device__ __forceinline__ void store_pack(void *to, const Pack &data)
{
    if constexpr (sizeof(Pack) == sizeof(uint4))
        store_quad(to, bits_of(data));
    else
        *(Pack *)to = data;
}

template <typename T, int N>
static __device__ __forceinline__ void store_scaled(const typename T::sum wide[N], float weight,
                                                    T *to)
{
    typename T::sum product[N];
    pack<T, N> out;

#pragma unroll
    for (int n = 0; n < N; n++)
        product[n] = mul((typename T::sum)weight, wide[n]);
    round_pack(product, out);
    store_pack(to, out);
}

/* The slot that a block of a gradient goes to. */
template <typename T> struct scaled_slot {
    T *block;
    int32_t elements; /* of the row in the block */
    float weight;
    bool weighted; /* else the gradient is stored as it is */
};

/* Stores a block of a gradient to a slot. */
template <typename T, int N, typename Grad>
static __device__ __forceinline__ void store_block(const Grad &grad,
                                                   const struct scaled_slot<T> &slot)
{
    T *first = slot.block + first_of_thread<N>();
    const int32_t end = end_of_steps<N>(slot.elements);

#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++)
#pragma unroll
        for (int p = 0; p < block_part<T, N>::PACKS; p++) {
            typename T::sum wide[N];

            if (step_of<N>(j, p) >= end)
                continue;
            if (slot.weighted) {
                grad.widen(j, p, wide);
                store_scaled<T, N>(wide, slot.weight, first + step_of<N>(j, p));
            } else {
                store_pack(first + step_of<N>(j, p), grad.at(j, p));
            }
        }
}

/* Stores a block of a gradient to a slot, and returns this thread's share of its dot product with
 * the row of the slot. Packs that are stored with weights are widened once, where there are
 * registers for it. */
template <typename T, int N, typename Grad>
static __device__ __forceinline__ typename T::sum
store_and_multiply(const Grad &grad, const struct block_part<T, N> &forward,
                   const struct scaled_slot<T> &slot)
{
    const bool AT_ONCE = N > 1 && sizeof(typename T::sum) < sizeof(double);
    T *first = slot.block + first_of_thread<N>();
    const int32_t end = end_of_steps<N>(slot.elements);

    if (AT_ONCE && slot.weighted)
        return dot_of_block<T, N>(grad, forward, [&](int32_t step, const typename T::sum *wide) {
            if (step < end)
                store_scaled<T, N>(wide, slot.weight, first + step);
        });
    typename T::sum dot =
        dot_of_block<T, N>(grad, forward, [](int32_t, const typename T::sum *) {});

    store_block<T, N>(grad, slot);
    return dot;
}

/* Whether rows of so many bytes that begin at multiples of that from three addresses on can be read
 * and written 16 bytes at a time. */
static __host__ __device__ __forceinline__ bool
rows_are_aligned(const void *first, const void *second, const void *third, int64_t row_bytes)
{
    return (misalignment(first) | misalignment(second) | misalignment(third) |
            ((uint32_t)row_bytes & 15u)) == 0;
}

#endif
