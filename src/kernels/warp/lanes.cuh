/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lanes.cuh - lanes, warps and blocks: which one this is, who shares its work; and sums over
 * a warp.
 */
#ifndef EPX_KERNELS_WARP_LANES_CUH
#define EPX_KERNELS_WARP_LANES_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/args/block_shape.h"

#ifdef __CUDACC__

/* For functions that seldom run: they stay out of the code that always runs and must be fetched. */
#define EPX_COLD __noinline__

static __device__ __forceinline__ int32_t lane_id()
{
    return (int32_t)(threadIdx.x % EPX_WARP);
}

/* The lanes before this one, a bit each. */
static __device__ __forceinline__ uint32_t lanes_below()
{
    return (1u << lane_id()) - 1;
}

static __device__ __forceinline__ int32_t global_warp()
{
    return (int32_t)((blockIdx.x * blockDim.x + threadIdx.x) / EPX_WARP);
}

static __device__ __forceinline__ int32_t num_global_warps()
{
    return (int32_t)(gridDim.x * (blockDim.x / EPX_WARP));
}

/* The last warp of the block, and the last thread of the kernel: work is dealt out from the first
 * ones on, so these have the least of it. */
static __device__ __forceinline__ bool is_last_warp()
{
    return threadIdx.x / EPX_WARP == blockDim.x / EPX_WARP - 1;
}

static __device__ __forceinline__ bool is_last_thread()
{
    return blockIdx.x == gridDim.x - 1 && threadIdx.x == blockDim.x - 1;
}

/* Warps that share a piece of work, and which of them this one is. */
struct crew {
    int32_t warp, num;
};

static __device__ __forceinline__ struct crew all_warps()
{
    return {global_warp(), num_global_warps()};
}

/* In a kernel whose first `senders` blocks store and whose other blocks take what comes. */
static __device__ __forceinline__ bool is_sending_block(int32_t senders)
{
    return (int32_t)blockIdx.x < senders;
}

/* The warps of the blocks that have this block's role; neighbours are in different blocks, so that
 * little work is spread over many multiprocessors. */
static __device__ __forceinline__ struct crew crew_of_role(int32_t senders)
{
    int32_t warp = (int32_t)threadIdx.x / EPX_WARP, warps = (int32_t)blockDim.x / EPX_WARP;
    int32_t block = (int32_t)blockIdx.x, blocks = senders;

    if (!is_sending_block(senders)) {
        block -= senders;
        blocks = (int32_t)gridDim.x - senders;
    }
    return {warp * blocks + block, blocks * warps};
}

/* Adds counts; a sum that is too large stays at the largest number. */
static __device__ __forceinline__ int64_t add_capped(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

/* The sum over the lanes of a warp up to this one; the caller knows that it is not too large. */
template <typename Count> static __device__ __forceinline__ Count scan_lanes(Count value)
{
#pragma unroll
    for (int32_t d = 1; d < EPX_WARP; d *= 2) {
        Count below = __shfl_up_sync(~0u, value, d);

        value += lane_id() >= d ? below : 0;
    }
    return value;
}

/* The sum, by add_capped, over the lanes of a warp up to this one, of the first `num`, where the
 * others have nothing to add and get no sum. */
static __device__ __forceinline__ int64_t scan_capped(int64_t value, int32_t num)
{
#pragma unroll 1
    for (int32_t d = 1; d < num; d *= 2) {
        int64_t below = __shfl_up_sync(~0u, value, d);

        value = lane_id() >= d ? add_capped(value, below) : value;
    }
    return value;
}

/* One warp: the sum over the lanes before this one, from what scan_capped gave each. It is not the
 * lane's own sum less its value, which is wrong where that stays at the largest number. */
static __device__ __forceinline__ int64_t before_lane(int64_t through)
{
    int64_t before = __shfl_up_sync(~0u, through, 1);

    return lane_id() ? before : 0;
}

#endif

#endif
