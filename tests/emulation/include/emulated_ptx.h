/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_ptx.h - stands for src/kernels/protocol/ptx.cuh, and has its guard. A load, by which
 * kernels wait for others, lets them go on; every store or sum may.
 */
#ifndef EPX_KERNELS_PROTOCOL_PTX_CUH
#define EPX_KERNELS_PROTOCOL_PTX_CUH

#include <stdint.h>
#include <time.h>

#include "emulation/include/emulation.h"

static inline uint64_t load_acquire_sys(const uint64_t *p)
{
    emulated_spin();
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline uint64_t load_relaxed_sys(const uint64_t *p)
{
    emulated_spin();
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline uint64_t load_acquire_gpu(const uint64_t *p)
{
    emulated_spin();
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void store_relaxed_sys(uint64_t *p, uint64_t value)
{
    emulated_tells();
    emulated_step();
    __atomic_store_n(p, value, __ATOMIC_RELAXED);
    emulated_step();
}

/* Two words in one instruction; each of them is atomic. */
static inline void load_two_relaxed_sys(const uint64_t *p, uint64_t &low, uint64_t &high)
{
    emulated_spin();
    low = __atomic_load_n(p, __ATOMIC_RELAXED);
    emulated_step();
    high = __atomic_load_n(p + 1, __ATOMIC_RELAXED);
}

static inline void store_two_relaxed_sys(uint64_t *p, uint64_t low, uint64_t high)
{
    __atomic_store_n(p + 1, high, __ATOMIC_RELAXED);
    emulated_step();
    __atomic_store_n(p, low, __ATOMIC_RELAXED);
}

static inline void add_relaxed_sys(uint64_t *p, uint64_t value)
{
    emulated_tells();
    emulated_step();
    __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
    emulated_step();
}

static inline void add_release_gpu(uint64_t *p, uint64_t value)
{
    emulated_step();
    __atomic_fetch_add(p, value, __ATOMIC_RELEASE);
    emulated_step();
}

static inline uint64_t fetch_add_acq_rel_gpu(uint64_t *p, uint64_t value)
{
    uint64_t before;

    emulated_step();
    before = __atomic_fetch_add(p, value, __ATOMIC_ACQ_REL);
    emulated_step();
    return before;
}

static inline void fence_sys()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    emulated_fenced();
    emulated_step();
}

static inline uint64_t global_timer_ns()
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
