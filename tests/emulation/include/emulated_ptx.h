/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_ptx.h - stands for src/kernels/warp/ptx.cuh, and has its guard. A load, by which
 * kernels wait for others, lets them go on; every store or sum may.
 */
#ifndef EPX_KERNELS_WARP_PTX_CUH
#define EPX_KERNELS_WARP_PTX_CUH

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

static inline void let_next_kernel_begin()
{
    emulated_let_next_begin();
}

static inline void await_kernel_before()
{
    emulated_await_kernel_before();
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

/* A word that carries its own tag: it tells of nothing but itself, and needs no fence. */
static inline void store_word_sys(uint64_t *p, uint64_t value)
{
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

/* A packet is two words; the high one, with the tag, is stored last and loaded first, so a load
 * that sees it sees the other one too. */
static inline void load_packet_sys(const void *p, uint64_t &low, uint64_t &high)
{
    emulated_spin();
    high = __atomic_load_n((const uint64_t *)p + 1, __ATOMIC_ACQUIRE);
    low = __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
}

static inline void store_packet_sys(void *p, uint64_t low, uint64_t high)
{
    emulated_step();
    __atomic_store_n((uint64_t *)p, low, __ATOMIC_RELAXED);
    emulated_step();
    __atomic_store_n((uint64_t *)p + 1, high, __ATOMIC_RELEASE);
    emulated_step();
}

static inline void store_quad(void *p, uint4 quad)
{
    emulated_check_quad(p);
    *(uint4 *)p = quad;
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

static inline void fence_release_sys()
{
    fence_sys();
}

static inline void fence_acquire_sys()
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    emulated_step();
}

static inline uint64_t global_timer_ns()
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void emulated_make(const struct emulated_copy *copy)
{
    const uint64_t *from = (const uint64_t *)copy->from;
    uint64_t *to = (uint64_t *)copy->to;

    for (uint32_t i = 0; i < copy->bytes / sizeof(*to); i++)
        to[i] = from[i];
}

/* A copy ahead may be there before its wait, or not. */
template <int BYTES> static inline void copy_ahead(void *to, const void *from)
{
    const struct emulated_copy copy = {to, from, BYTES};

    emulated_step();
    if (!emulated_ahead_copy(copy))
        emulated_make(&copy);
}

static inline void end_copies_ahead()
{
    emulated_ahead_end_group();
}

template <int PENDING> static inline void await_copies_ahead()
{
    struct emulated_copy copy;

    while (emulated_ahead_take(PENDING, &copy))
        emulated_make(&copy);
    emulated_step();
}

/* Bulk copies. A barrier word counts phases that have ended, and has a bit for the arrival. */
#define HAS_BULK_COPIES 1

static const uint64_t EMULATED_ARRIVED = 1ULL << 32;

static inline void init_bulk_barrier(uint64_t *barrier)
{
    *barrier = 0;
}

static inline void load_bulk(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    emulated_bulk_load({to, from, bytes}, barrier);
}

static inline void arrive_at_bulk_barrier(uint64_t *barrier)
{
    __atomic_fetch_or(barrier, EMULATED_ARRIVED, __ATOMIC_RELAXED);
}

static inline bool bulk_phase_has_ended(uint64_t *barrier, uint32_t parity)
{
    struct emulated_copy copy;
    uint64_t word = __atomic_load_n(barrier, __ATOMIC_RELAXED);

    if ((word & 1) != parity)
        return true;
    if (!(word & EMULATED_ARRIVED)) {
        emulated_spin();
        return false;
    }
    __atomic_store_n(barrier, (uint32_t)word, __ATOMIC_RELAXED); /* others wait */
    while (emulated_bulk_take_load(barrier, &copy))
        emulated_make(&copy);
    __atomic_store_n(barrier, (uint32_t)word + 1, __ATOMIC_RELAXED);
    return true;
}

static inline void store_bulk(void *to, const void *from, uint32_t bytes)
{
    emulated_bulk_store({to, from, bytes});
}

static inline void end_bulk_group()
{
    emulated_bulk_end_group();
}

template <int PENDING> static inline void await_bulk_reads()
{
    struct emulated_copy copy;

    while (emulated_bulk_take_read(PENDING, &copy))
        emulated_make(&copy);
}

template <int PENDING> static inline void await_bulk_stores()
{
    struct emulated_copy copy;

    await_bulk_reads<PENDING>();
    while (emulated_bulk_take_store(PENDING, &copy))
        emulated_make(&copy);
}

static inline void fence_bulk_copies()
{
    emulated_step();
}

static inline void fence_bulk_copies_here()
{
    emulated_step();
}

#endif
