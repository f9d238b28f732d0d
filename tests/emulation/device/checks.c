/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * checks.c - looks at every access of kernels to memory: the kernels are compiled as for
 * ThreadSanitizer, and its functions are here. It ends the program at
 *
 *   a race     two threads of a block access a byte of shared memory, one of them stores, and
 *              no meeting of the warp or block that has both lies between; but lanes of a warp may
 *              store at once, as they may where they store the same
 *   behind     an access to shared memory that the block does not have
 *   no fence   a thread tells others of memory, by a store or sum that they wait for, and it, or a
 *              thread that it has met, has stored to memory since its last fence
 *
 * And it lets other threads go on at any access, by the seed.
 */
#define _GNU_SOURCE /* dladdr */
#include "emulation/device/checks.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulation/device/blocks.h"
#include "emulation/device/threads.h"

/* Instead of a thread: none; threads of several warps; lanes of a warp, with its number. */
enum { NOBODY = 0, SEVERAL = 0xffff, LANES = 0x4000, ONE_IN = 256 };

/* When a thread came to a byte; the number of a thread is one more than its place. */
struct visit {
    uint16_t thread;
    uint16_t is_atomic;
    uint32_t opened, meeting; /* how often the block, and its warp, had met before */
};

struct byte {
    struct visit store, load;
};

static uint64_t last_store;
static _Thread_local int is_device; /* else the host's part of a file of kernels runs */

void checks_begin(void)
{
    is_device = 1;
}

void checks_forget(struct block *block)
{
    if (block->accesses)
        memset(block->accesses, 0, block->accessed * sizeof(*block->accesses));
    block->accessed = 0;
}

void checks_meet(struct block *block, int first, int end)
{
    uint64_t knows = 0;

    for (int i = first; i < end && i < block->num; i++)
        if (block->threads[i].knows > knows)
            knows = block->threads[i].knows;
    for (int i = first; i < end && i < block->num; i++)
        block->threads[i].knows = knows;
}

/* Tells of a place in a kernel, then ends the program. */
static _Noreturn void complain(const struct thread *thread, const char *what, const void *place)
{
    Dl_info info;

    if (dladdr(place, &info) && info.dli_fname)
        fprintf(stderr, "emulation: thread %u of block %u at: addr2line -ifCe %s 0x%zx\n",
                thread->place.thread.x, thread->place.block.x, info.dli_fname,
                (size_t)((const char *)place - (const char *)info.dli_fbase - 1));
    threads_refuse(thread->block, what);
}

static struct visit visit_of(const struct thread *thread, int is_atomic)
{
    return (struct visit){(uint16_t)(thread->place.thread.x + 1), (uint16_t)is_atomic,
                          thread->block->opened, threads_warp(thread)->meeting};
}

static int is_of_warp(const struct visit *visit, int warp)
{
    if (visit->thread & LANES)
        return visit->thread == (LANES | warp);
    return (visit->thread - 1) / EMULATED_WARP == warp;
}

/* Whether two threads came at once. */
static int races(const struct visit *before, const struct visit *now)
{
    int same_warp = is_of_warp(before, (now->thread - 1) / EMULATED_WARP);

    if (before->thread == NOBODY || before->thread == now->thread ||
        (before->is_atomic && now->is_atomic) || before->opened != now->opened)
        return 0;
    return !same_warp || before->meeting == now->meeting;
}

/* Whether lanes of a warp store, or have stored, the same. */
static int store_at_once(const struct visit *before, const struct visit *now, int stores)
{
    return is_of_warp(before, (now->thread - 1) / EMULATED_WARP) &&
           (stores || before->thread & LANES);
}

/* What is kept of the loads, or stores, since the last meeting. */
static struct visit merge(const struct visit *before, struct visit now)
{
    int warp = (now.thread - 1) / EMULATED_WARP;

    if (before->thread == NOBODY || before->thread == now.thread || before->opened != now.opened)
        return now;
    if (!is_of_warp(before, warp))
        now.thread = SEVERAL;
    else if (before->meeting == now.meeting)
        now.thread = (uint16_t)(LANES | warp);
    return now;
}

static void visit_shared(struct thread *thread, size_t at, size_t bytes, int stores, int is_atomic,
                         const void *place)
{
    struct block *block = thread->block;
    struct visit now = visit_of(thread, is_atomic);

    if (!block->accesses)
        block->accesses = calloc(MOST_SHARED_BYTES, sizeof(*block->accesses));
    if (!block->accesses)
        abort();
    if (at + bytes > block->shared_used)
        complain(thread, "an access behind the memory of a block", place);
    if (block->accessed < at + bytes)
        block->accessed = at + bytes;
    for (size_t i = at; i < at + bytes; i++) {
        struct byte *byte = &block->accesses[i];

        if ((races(&byte->store, &now) && !store_at_once(&byte->store, &now, stores)) ||
            (stores && races(&byte->load, &now)))
            complain(thread, "a race in the memory of a block", place);
        if (stores)
            byte->store = merge(&byte->store, now);
        else
            byte->load = merge(&byte->load, now);
    }
}

static void visit(const void *address, size_t bytes, int stores, int is_atomic, const void *place)
{
    struct thread *thread = threads_here();
    const char *byte = address;

    if (!is_device || !thread)
        return;
    if (byte >= thread->block->shared && byte < thread->block->shared + MOST_SHARED_BYTES) {
        visit_shared(thread, (size_t)(byte - thread->block->shared), bytes, stores, is_atomic,
                     place);
    } else if (byte < (char *)thread->fiber.stack - FIBER_BYTES ||
               byte >= (char *)thread->fiber.stack) {
        if (stores && !is_atomic)
            thread->knows = ++last_store;
        if (blocks_random(ONE_IN) == 1)
            emulated_spin();
    }
}

void emulated_fenced(void)
{
    struct thread *thread = threads_here();

    thread->fenced = thread->knows;
}

void emulated_tells(void)
{
    struct thread *thread = threads_here();

    if (thread->knows > thread->fenced)
        complain(thread, "no fence between a store and what tells of it",
                 __builtin_return_address(0));
}

#define VISIT(name, bytes, stores, is_atomic)                                                      \
    void __tsan_##name(void *address);                                                             \
    void __tsan_##name(void *address)                                                              \
    {                                                                                              \
        visit(address, bytes, stores, is_atomic, __builtin_return_address(0));                     \
    }
#define ACCESS(name, bytes, stores) VISIT(name, bytes, stores, 0)
ACCESS(read1, 1, 0)
ACCESS(read2, 2, 0)
ACCESS(read4, 4, 0)
ACCESS(read8, 8, 0)
ACCESS(read16, 16, 0)
ACCESS(unaligned_read2, 2, 0)
ACCESS(unaligned_read4, 4, 0)
ACCESS(unaligned_read8, 8, 0)
ACCESS(unaligned_read16, 16, 0)
ACCESS(write1, 1, 1)
ACCESS(write2, 2, 1)
ACCESS(write4, 4, 1)
ACCESS(write8, 8, 1)
ACCESS(write16, 16, 1)
ACCESS(unaligned_write2, 2, 1)
ACCESS(unaligned_write4, 4, 1)
ACCESS(unaligned_write8, 8, 1)
ACCESS(unaligned_write16, 16, 1)

/* To a GPU a volatile access is a relaxed one. */
VISIT(volatile_read1, 1, 0, 1)
VISIT(volatile_read2, 2, 0, 1)
VISIT(volatile_read4, 4, 0, 1)
VISIT(volatile_read8, 8, 0, 1)
VISIT(volatile_write1, 1, 1, 1)
VISIT(volatile_write2, 2, 1, 1)
VISIT(volatile_write4, 4, 1, 1)
VISIT(volatile_write8, 8, 1, 1)

#define RANGE(name, stores)                                                                        \
    void __tsan_##name(void *address, size_t bytes);                                               \
    void __tsan_##name(void *address, size_t bytes)                                                \
    {                                                                                              \
        visit(address, bytes, stores, 0, __builtin_return_address(0));                             \
    }
RANGE(read_range, 0)
RANGE(write_range, 1)

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* As ThreadSanitizer has them: the order is always the strongest. */
#define ATOMICS(bits)                                                                              \
    uint##bits##_t __tsan_atomic##bits##_load(const uint##bits##_t *p, int order);                 \
    uint##bits##_t __tsan_atomic##bits##_load(const uint##bits##_t *p, int order)                  \
    {                                                                                              \
        (void)order;                                                                               \
        visit(p, bits / 8, 0, 1, __builtin_return_address(0));                                     \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    void __tsan_atomic##bits##_store(uint##bits##_t *p, uint##bits##_t value, int order);          \
    void __tsan_atomic##bits##_store(uint##bits##_t *p, uint##bits##_t value, int order)           \
    {                                                                                              \
        (void)order;                                                                               \
        visit(p, bits / 8, 1, 1, __builtin_return_address(0));                                     \
        __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                              \
    }                                                                                              \
    int __tsan_atomic##bits##_compare_exchange_strong(                                             \
        uint##bits##_t *p, uint##bits##_t *expected, uint##bits##_t value, int order, int failed); \
    int __tsan_atomic##bits##_compare_exchange_strong(uint##bits##_t *p, uint##bits##_t *expected, \
                                                      uint##bits##_t value, int order, int failed) \
    {                                                                                              \
        (void)order;                                                                               \
        (void)failed;                                                                              \
        visit(p, bits / 8, 1, 1, __builtin_return_address(0));                                     \
        return __atomic_compare_exchange_n(p, expected, value, 0, __ATOMIC_SEQ_CST,                \
                                           __ATOMIC_SEQ_CST);                                      \
    }
#define FOLD(bits, name)                                                                           \
    uint##bits##_t __tsan_atomic##bits##_##name(uint##bits##_t *p, uint##bits##_t value,           \
                                                int order);                                        \
    uint##bits##_t __tsan_atomic##bits##_##name(uint##bits##_t *p, uint##bits##_t value,           \
                                                int order)                                         \
    {                                                                                              \
        (void)order;                                                                               \
        visit(p, bits / 8, 1, 1, __builtin_return_address(0));                                     \
        return __atomic_##name(p, value, __ATOMIC_SEQ_CST);                                        \
    }
ATOMICS(32)
ATOMICS(64)
FOLD(32, fetch_add)
FOLD(64, fetch_add)
FOLD(32, fetch_or)
FOLD(64, fetch_or)
