/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * blocks.c - blocks of kernels that run. A thread runs until it waits: at a meeting of its warp or
 * block, or for a word of memory. It never loses the processor elsewhere, so with one order of
 * threads one run is like the other; a seed gives other orders.
 *
 * A kernel that would hang, or do what CUDA does not define, ends the program: lanes of a warp that
 * meet for different things, threads of a block that do, a block in which all threads that are left
 * wait for each other. Memory of a block begins with a pattern.
 */
#include "emulation/device/blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulation/device/bulk.h"
#include "emulation/device/checks.h"
#include "emulation/device/threads.h"

enum { PATTERN = 0xa5, MOST_ENDED = 256 };

struct emulated_place *emulated_here;
static unsigned long long seed, random_state;
static struct block *ended; /* blocks, which others are made of */
static int num_ended;

void blocks_seed(unsigned long long number)
{
    seed = number;
    random_state = number * 0x9e3779b97f4a7c15ULL;
}

/* splitmix64 */
unsigned blocks_random(unsigned most)
{
    unsigned long long z = random_state += 0x9e3779b97f4a7c15ULL;

    if (!seed || most == 0)
        return 0;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (unsigned)((z ^ (z >> 31)) % most);
}

static const char *const names_of_waits[] = {"run", "are at a meeting of their warp",
                                             "are at a barrier", "wait for memory", "have ended"};

/* Ends the program, after telling where the threads of the block are. */
_Noreturn void threads_refuse(const struct block *block, const char *why)
{
    int num[HAS_ENDED + 1] = {0};

    for (int i = 0; i < block->num; i++)
        num[block->threads[i].wait]++;
    fprintf(stderr, "emulation: %s: %s (block %u of %u, %d threads)\n", block->launch->launcher,
            why, block->threads[0].place.block.x, block->launch->blocks.x, block->num);
    for (int i = 0; i <= HAS_ENDED; i++)
        if (num[i])
            fprintf(stderr, "emulation: %d threads %s\n", num[i], names_of_waits[i]);
    abort();
}

static void make_ready(struct block *block, int i)
{
    block->threads[i].wait = NO_WAIT;
    block->ready[(block->first_ready + block->num_ready++) % block->num] = i;
}

static void wait_for(enum wait wait)
{
    threads_here()->wait = wait;
    fiber_leave();
}

static void open_barrier(struct block *block)
{
    struct barrier *barrier = &block->barrier;

    checks_meet(block, 0, block->num);
    block->opened++;
    barrier->result = barrier->yes;
    barrier->arrived = barrier->yes = 0;
    for (int i = 0; i < block->num; i++)
        if (block->threads[i].wait == WAIT_BLOCK)
            make_ready(block, i);
}

int emulated_sync(enum emulated_meeting what, int yes)
{
    struct thread *thread = threads_here();
    struct block *block = thread->block;
    struct barrier *barrier = &block->barrier;

    if (barrier->arrived && barrier->what != what)
        threads_refuse(block, "threads are at barriers of different kinds");
    barrier->what = what;
    barrier->arrived++;
    barrier->yes += yes;
    thread->wait = WAIT_BLOCK;
    block->moved = 1;
    if (barrier->arrived == block->live)
        open_barrier(block);
    fiber_leave();
    return barrier->result;
}

static void end_meeting(struct block *block, struct warp *warp)
{
    int first = (int)(warp - block->warps) * EMULATED_WARP;

    checks_meet(block, first, first + EMULATED_WARP);
    warp->lanes[warp->meeting % 2].present = warp->arrived;
    warp->meeting++;
    for (int lane = 0; lane < EMULATED_WARP; lane++)
        if (warp->arrived >> lane & 1)
            make_ready(block, first + lane);
    warp->arrived = 0;
}

const struct emulated_lanes *emulated_meet(enum emulated_meeting what, uint32_t mask,
                                           uint64_t value)
{
    struct thread *thread = threads_here();
    struct warp *warp = threads_warp(thread);
    unsigned lane = thread->place.thread.x % EMULATED_WARP;
    struct emulated_lanes *lanes = &warp->lanes[warp->meeting % 2];

    if (warp->arrived && (warp->what != what || warp->mask != mask))
        threads_refuse(thread->block, "lanes of a warp meet for different things");
    if (mask != ~0u)
        threads_refuse(thread->block, "a meeting of some lanes of a warp is not emulated");
    warp->what = what;
    warp->mask = mask;
    lanes->value[lane] = value;
    warp->arrived |= 1u << lane;
    thread->wait = WAIT_WARP;
    thread->block->moved = 1;
    if (warp->arrived == warp->live)
        end_meeting(thread->block, warp);
    fiber_leave();
    return lanes;
}

void emulated_spin(void)
{
    wait_for(WAIT_SPIN);
}

void emulated_step(void)
{
    if (blocks_random(8) == 1)
        wait_for(WAIT_SPIN);
}

void *emulated_shared(const void *key, size_t bytes)
{
    struct block *block = threads_here()->block;
    struct variable *variable = block->variables;

    for (int i = 0; i < block->num_variables; i++, variable++)
        if (variable->key == key)
            return block->shared + variable->at;
    bytes = (bytes + SHARED_QUANTUM - 1) / SHARED_QUANTUM * SHARED_QUANTUM;
    if (block->num_variables == MOST_SHARED || block->shared_used + bytes > MOST_SHARED_BYTES)
        threads_refuse(block, "the memory of a block is used up");
    *variable = (struct variable){key, block->shared_used};
    block->num_variables++;
    block->shared_used += bytes;
    return block->shared + variable->at;
}

void *emulated_dynamic_shared(void)
{
    return threads_here()->block->shared;
}

/* The last step of a thread: whoever waits only for it goes on. */
static void end_thread(struct thread *thread)
{
    struct block *block = thread->block;
    struct warp *warp = threads_warp(thread);

    bulk_end_thread(thread);
    thread->wait = HAS_ENDED;
    block->live--;
    block->moved = 1;
    warp->live &= ~(1u << thread->place.thread.x % EMULATED_WARP);
    if (warp->arrived && warp->arrived == warp->live)
        end_meeting(block, warp);
    if (block->live && block->barrier.arrived == block->live)
        open_barrier(block);
    fiber_leave();
}

static void run_thread(void *argument)
{
    struct thread *thread = argument;
    const struct emulated_kernel *launch = thread->block->launch;

    launch->call(launch->arguments);
    end_thread(thread);
}

static void *zeroed(size_t num, size_t bytes)
{
    void *memory = calloc(num ? num : 1, bytes);

    if (!memory)
        abort();
    return memory;
}

static void start_threads(struct block *block, uint3 index)
{
    for (int i = 0; i < block->num; i++) {
        struct thread *thread = &block->threads[i];

        thread->place = (struct emulated_place){.thread = {(unsigned)i, 0, 0},
                                                .block = index,
                                                .threads = block->launch->threads,
                                                .blocks = block->launch->blocks};
        thread->block = block;
        threads_warp(thread)->live |= 1u << i % EMULATED_WARP;
        fiber_make(&thread->fiber, run_thread, thread);
        make_ready(block, i);
    }
}

static size_t num_warps(const struct block *block)
{
    return ((size_t)block->num + EMULATED_WARP - 1) / EMULATED_WARP;
}

/* Makes a block that has ended as it was made. */
static void clean_block(struct block *block)
{
    const struct block clean = {.num = block->num,
                                .threads = block->threads,
                                .warps = block->warps,
                                .ready = block->ready,
                                .spinning = block->spinning,
                                .shared = block->shared,
                                .accesses = block->accesses};

    memset(block->threads, 0, (size_t)block->num * sizeof(*block->threads));
    memset(block->warps, 0, num_warps(block) * sizeof(*block->warps));
    memset(block->shared, PATTERN, block->shared_used);
    *block = clean;
}

static struct block *make_block(int num_threads)
{
    struct block *block = zeroed(1, sizeof(*block));

    block->num = num_threads;
    block->threads = zeroed((size_t)num_threads, sizeof(*block->threads));
    block->warps = zeroed(num_warps(block), sizeof(*block->warps));
    block->ready = zeroed((size_t)num_threads, sizeof(*block->ready));
    block->spinning = zeroed((size_t)num_threads, sizeof(*block->spinning));
    block->shared = aligned_alloc(SHARED_QUANTUM, MOST_SHARED_BYTES);
    if (!block->shared)
        abort();
    memset(block->shared, PATTERN, MOST_SHARED_BYTES);
    return block;
}

/* A block of those that have ended, if there is one of so many threads: making one costs more than
 * many kernels do. */
static struct block *take_ended(int num_threads)
{
    struct block **link = &ended, *block;

    while (*link && (*link)->num != num_threads)
        link = &(*link)->next;
    block = *link;
    if (!block)
        return NULL;
    *link = block->next;
    num_ended--;
    return block;
}

struct block *block_start(const struct emulated_kernel *launch, uint3 index)
{
    const int num = (int)launch->threads.x;
    struct block *block = take_ended(num);

    if (!block)
        block = make_block(num);
    block->launch = launch;
    block->live = num;
    block->shared_used =
        (launch->shared_bytes + SHARED_QUANTUM - 1) / SHARED_QUANTUM * SHARED_QUANTUM;
    start_threads(block, index);
    return block;
}

static int take_ready(struct block *block)
{
    int *first = &block->ready[block->first_ready], i;
    int at = block->first_ready + (int)blocks_random((unsigned)block->num_ready);
    int *chosen = &block->ready[at % block->num];

    i = *chosen;
    *chosen = *first;
    block->first_ready = (block->first_ready + 1) % block->num;
    block->num_ready--;
    return i;
}

static void run_one(struct block *block, int i)
{
    struct thread *thread = &block->threads[i];

    emulated_here = &thread->place;
    fiber_enter(&thread->fiber);
    emulated_here = NULL;
    if (thread->wait == WAIT_SPIN)
        block->spinning[block->num_spinning++] = i;
    if (thread->wait == HAS_ENDED)
        fiber_free(&thread->fiber);
}

int block_run(struct block *block)
{
    block->moved = 0;
    while (block->num_ready)
        run_one(block, take_ready(block));
    if (block->live && !block->num_spinning)
        threads_refuse(block, "all threads that are left wait for each other");
    for (int i = 0; i < block->num_spinning; i++)
        make_ready(block, block->spinning[i]);
    block->num_spinning = 0;
    return block->moved;
}

int block_has_ended(const struct block *block)
{
    return block->live == 0;
}

static void release(struct block *block)
{
    free(block->accesses);
    free(block->shared);
    free(block->spinning);
    free(block->ready);
    free(block->warps);
    free(block->threads);
    free(block);
}

void block_free(struct block *block)
{
    bulk_end_block(block);
    if (num_ended == MOST_ENDED) {
        release(block);
        return;
    }
    checks_forget(block);
    clean_block(block);
    block->next = ended;
    ended = block;
    num_ended++;
}
