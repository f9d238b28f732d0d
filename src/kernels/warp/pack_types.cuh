/* SPDX-License-Identifier: BSD-3-Clause */
/* pack_types.cuh - the types that are added, and packs of their elements, loaded at once. */
#ifndef EPX_KERNELS_WARP_PACK_TYPES_CUH
#define EPX_KERNELS_WARP_PACK_TYPES_CUH

#include "kernels/element.h"

/* The types that are added: how they are stored, and what their sums are kept in; of an operation,
 * the type of its rows and that of the sums that travel. */
struct float16 {
    typedef float16 row, part;
    uint16_t bits;
    typedef float sum;
    static __device__ __forceinline__ float load(float16 a)
    {
        return epx_float_of_float16(a.bits);
    }
    static __device__ __forceinline__ float16 store(float a)
    {
        return {epx_float16_of_float(a)};
    }
#if EPX_TWO_HALVES
    static __device__ __forceinline__ uint32_t store_two(float first, float second)
    {
        return epx_two_float16(first, second);
    }
    static __device__ __forceinline__ uint32_t add_two(uint32_t a, uint32_t b)
    {
        return epx_add_two_float16(a, b);
    }
#endif
};

struct bfloat16 {
    typedef bfloat16 row, part;
    uint16_t bits;
    typedef float sum;
    static __device__ __forceinline__ float load(bfloat16 a)
    {
        return epx_float_of_bfloat16(a.bits);
    }
    static __device__ __forceinline__ bfloat16 store(float a)
    {
        return {epx_bfloat16_of_float(a)};
    }
#if EPX_TWO_HALVES
    static __device__ __forceinline__ uint32_t store_two(float first, float second)
    {
        return epx_two_bfloat16(first, second);
    }
    static __device__ __forceinline__ uint32_t add_two(uint32_t a, uint32_t b)
    {
        return epx_add_two_bfloat16(a, b);
    }
#endif
};

struct float32 {
    typedef float32 row, part;
    float value;
    typedef float sum;
    static __device__ __forceinline__ float load(float32 a)
    {
        return a.value;
    }
    static __device__ __forceinline__ float32 store(float a)
    {
        return {a};
    }
};

struct float64 {
    typedef float64 row, part;
    double value;
    typedef double sum;
    static __device__ __forceinline__ double load(float64 a)
    {
        return a.value;
    }
    static __device__ __forceinline__ float64 store(double a)
    {
        return {a};
    }
};

/* Operations whose sums travel as float32. */
struct wide_float16 {
    typedef float16 row;
    typedef float32 part;
};

struct wide_bfloat16 {
    typedef bfloat16 row;
    typedef float32 part;
};

/* Where bytes of a row that travels lie in a row of the operation's datatype. */
template <typename T> static __device__ __forceinline__ int64_t in_row(int64_t offset)
{
    if (sizeof(typename T::row) == sizeof(typename T::part))
        return offset;
    return offset / (int64_t)sizeof(typename T::part) * (int64_t)sizeof(typename T::row);
}

static __device__ __forceinline__ float mul(float a, float b)
{
    return epx_mul_float(a, b);
}
static __device__ __forceinline__ float add(float a, float b)
{
    return epx_add_float(a, b);
}
static __device__ __forceinline__ double mul(double a, double b)
{
    return epx_mul_double(a, b);
}
static __device__ __forceinline__ double add(double a, double b)
{
    return epx_add_double(a, b);
}

/* Elements that are loaded at once. */
template <typename T, int N> struct alignas(sizeof(T) * N) pack {
    T element[N];
};

/* A pack as one word. */
template <typename T, int N> static __device__ __forceinline__ uint4 bits_of(const pack<T, N> &data)
{
    uint4 bits;

    static_assert(sizeof(data) == sizeof(bits), "a word has 16 bytes");
    memcpy(&bits, &data, sizeof(bits));
    return bits;
}

/* Rounds sums to elements. */
template <typename T, int N>
static __device__ __forceinline__ void round_pack(const typename T::sum sum[N], pack<T, N> &rounded)
{
    if constexpr (EPX_TWO_HALVES && sizeof(T) == 2 && N % 2 == 0) {
        uint32_t two[N / 2];

#pragma unroll
        for (int n = 0; n < N; n += 2)
            two[n / 2] = T::store_two(sum[n], sum[n + 1]);
        memcpy(&rounded, two, sizeof(two));
    } else {
#pragma unroll
        for (int n = 0; n < N; n++)
            rounded.element[n] = T::store(sum[n]);
    }
}

/* What sums are kept in, of each element. */
template <typename T, int N>
static __device__ __forceinline__ void widen_pack(const pack<T, N> &data, typename T::sum wide[N])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        wide[n] = T::load(data.element[n]);
}

/* widen_pack of eight bfloat16 in four words takes an instruction for each of them. */
static __device__ __forceinline__ void widen_pack(const pack<bfloat16, 8> &data, float wide[8])
{
    uint32_t word[4];

    memcpy(word, &data, sizeof(word));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        wide[2 * i] = epx_float_of_bits(word[i] << 16);
        wide[2 * i + 1] = epx_float_of_bits(word[i] & 0xffff0000u);
    }
}

#endif
