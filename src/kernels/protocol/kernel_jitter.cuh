/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel_jitter.cuh - --enable-jitter in kernels: warps sleep for random times where they post,
 * wait or take what came. The same JITTER_SEED gives the same times.
 */
#ifndef EPX_KERNELS_PROTOCOL_KERNEL_JITTER_CUH
#define EPX_KERNELS_PROTOCOL_KERNEL_JITTER_CUH

#include "config.h"
#include "kernels/args/block_shape.h"

#if ENABLE_JITTER
enum : uint32_t { SLEEPS_ONE_IN = 8, MOST_SLEEPS = 48 };

/* splitmix64, as in jitter.c */
static __device__ __forceinline__ uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Most warps go on at once, the others after at most 96 us: __nanosleep may sleep twice as long as
 * it is told. */
static __device__ __noinline__ void sleep_at(uint64_t seed, const uint64_t *operation,
                                             uint32_t line)
{
    uint64_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / EPX_WARP;
    uint64_t epoch = *(const volatile uint64_t *)operation;
    uint64_t random = mix(mix(seed + (epoch << 20)) + (warp << 32 | line));

    if (random % SLEEPS_ONE_IN)
        return;
    for (uint32_t i = 0; i < (random >> 32) % MOST_SLEEPS; i++)
        __nanosleep(1000);
}

#define EPX_DELAY(comm) sleep_at((comm).jitter_seed, &(comm).state->epoch, __LINE__)
#else
#define EPX_DELAY(comm) ((void)0)
#endif

#endif
