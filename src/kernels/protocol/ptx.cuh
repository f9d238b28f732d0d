/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptx.cuh - instructions that CUDA C++ has no words for: loads, stores, sums and fences by their
 * scope, and the clock. tests/emulation/include has the same for kernels on the host.
 */
#ifndef EPX_KERNELS_PROTOCOL_PTX_CUH
#define EPX_KERNELS_PROTOCOL_PTX_CUH

#include <stdint.h>

#ifdef __CUDACC__

static __device__ __forceinline__ uint64_t load_acquire_sys(const uint64_t *p)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t load_relaxed_sys(const uint64_t *p)
{
    uint64_t value;

    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t load_acquire_gpu(const uint64_t *p)
{
    uint64_t value;

    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

static __device__ __forceinline__ void store_relaxed_sys(uint64_t *p, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

/* Two words in one instruction; each of them is atomic. */
static __device__ __forceinline__ void load_two_relaxed_sys(const uint64_t *p, uint64_t &low,
                                                            uint64_t &high)
{
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(low), "=l"(high)
                 : "l"(p)
                 : "memory");
}

static __device__ __forceinline__ void store_two_relaxed_sys(uint64_t *p, uint64_t low,
                                                             uint64_t high)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(low), "l"(high)
                 : "memory");
}

static __device__ __forceinline__ void add_relaxed_sys(uint64_t *p, uint64_t value)
{
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

static __device__ __forceinline__ void add_release_gpu(uint64_t *p, uint64_t value)
{
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

static __device__ __forceinline__ uint64_t fetch_add_acq_rel_gpu(uint64_t *p, uint64_t value)
{
    uint64_t before;

    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(p), "l"(value)
                 : "memory");
    return before;
}

static __device__ __forceinline__ void fence_sys()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

static __device__ __forceinline__ uint64_t global_timer_ns()
{
    uint64_t now;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

#endif

#endif
