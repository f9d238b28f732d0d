/* SPDX-License-Identifier: BSD-3-Clause */
/* threads.h - what a block that runs is made of, for blocks.c and checks.c. */
#ifndef THREADS_H
#define THREADS_H

#include "emulation/device/fibers.h"
#include "emulation/include/emulation.h"

enum { MOST_SHARED = 32, MOST_SHARED_BYTES = 228 << 10, SHARED_QUANTUM = 128, MOST_AHEAD = 16 };
enum wait { NO_WAIT, WAIT_WARP, WAIT_BLOCK, WAIT_SPIN, HAS_ENDED };

struct warp {
    struct emulated_lanes lanes[2]; /* of meetings with even and odd number */
    unsigned meeting;
    uint32_t live, arrived, mask;
    enum emulated_meeting what;
};

/* A copy ahead that is under way. */
struct ahead {
    struct emulated_copy copy;
    unsigned group;
};

struct thread {
    struct emulated_place place; /* first */
    struct fiber fiber;
    struct block *block;
    enum wait wait;
    uint64_t knows, fenced; /* the last store that it knows of, that it has fenced; checks.c */
    struct bulk *stores, *last_store; /* bulk stores under way, the first one first */
    struct bulk *unread;              /* the first of them that has not read; NULL = none */
    unsigned groups;                  /* of bulk stores that have ended */
    struct ahead ahead[MOST_AHEAD];
    int num_ahead;
    unsigned ahead_groups; /* that have ended */
};

struct barrier {
    enum emulated_meeting what;
    int arrived, yes, result;
};

struct variable {
    const void *key;
    size_t at;
};

struct block {
    const struct emulated_kernel *launch;
    int lets_next_begin;
    int num, live;
    struct thread *threads;
    struct warp *warps;
    struct barrier barrier;
    uint32_t opened; /* how often the barrier has been */
    int first_ready, num_ready, num_spinning, *ready, *spinning; /* ready is a ring */
    int moved;
    struct variable variables[MOST_SHARED];
    int num_variables;
    size_t shared_used;
    char *shared;          /* dynamic first */
    struct byte *accesses; /* to each byte of it */
    size_t accessed;       /* bytes, up to the last that was */
    struct block *next;    /* of those that have ended */
};

static inline struct thread *threads_here(void)
{
    return (struct thread *)(void *)emulated_here;
}

static inline struct warp *threads_warp(const struct thread *thread)
{
    return &thread->block->warps[thread->place.thread.x / EMULATED_WARP];
}

/* Ends the program, after telling where the threads of the block are. */
_Noreturn void threads_refuse(const struct block *block, const char *why);

#endif
