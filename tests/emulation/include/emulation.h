/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulation.h - what a kernel calls of the emulation of a GPU. All functions but emulated_launch
 * are for threads of kernels.
 */
#ifndef EMULATION_H
#define EMULATION_H

#include <stddef.h>
#include <stdint.h>
#include <vector_types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EMULATED_WARP = 32 };

/* Where a thread stands. */
struct emulated_place {
    uint3 thread, block;
    dim3 threads, blocks;
};

/* The thread that runs. Its kernel leaves it, and comes back, only in functions of this file. */
extern struct emulated_place *emulated_here;

/* What lanes of a warp, or threads of a block, do together: all must do the same. */
enum emulated_meeting {
    EMULATED_SYNC,
    EMULATED_SHUFFLE,
    EMULATED_VOTE,
    EMULATED_REDUCE,
    EMULATED_MATCH,
    EMULATED_SYNC_AND,
    EMULATED_SYNC_OR,
    EMULATED_SYNC_COUNT
};

/* What each lane has brought; stays until the lane's next meeting but one. */
struct emulated_lanes {
    uint64_t value[EMULATED_WARP];
    uint32_t present;
};

/* Returns when all lanes of the warp that have not ended are there. */
const struct emulated_lanes *emulated_meet(enum emulated_meeting what, uint32_t mask,
                                           uint64_t value);
/* __syncthreads and the like: returns how many threads said yes. */
int emulated_sync(enum emulated_meeting what, int yes);
/* Lets other threads go on, in a wait. */
void emulated_spin(void);
/* May let other threads go on: called where the order of steps of threads matters. */
void emulated_step(void);

/* A fence was; what tells others of memory, by a word that they wait for, is about to be. */
void emulated_fenced(void);
void emulated_tells(void);

/* Bulk copies: begun by the first function of each pair, and made by who takes them. A load is due
 * at its barrier. A store is due if its group, of which the last may be pending, has ended; what it
 * reads is taken before it is. */
struct emulated_copy {
    void *to;
    const void *from;
    uint32_t bytes;
};
void emulated_bulk_load(struct emulated_copy copy, uint64_t *barrier);
int emulated_bulk_take_load(const uint64_t *barrier, struct emulated_copy *copy);
void emulated_bulk_store(struct emulated_copy copy);
int emulated_bulk_take_read(unsigned pending, struct emulated_copy *copy);
int emulated_bulk_take_store(unsigned pending, struct emulated_copy *copy);
void emulated_bulk_end_group(void);
/* A copy ahead is made by who begins it, or, if that returns true, by who takes it. */
int emulated_ahead_copy(struct emulated_copy copy);
void emulated_ahead_end_group(void);
int emulated_ahead_take(unsigned pending, struct emulated_copy *copy);
/* Ends the program if a GPU cannot store 16 bytes there in one piece, outside of the block. */
void emulated_check_quad(const void *address);

/* Lets the kernel behind this one on its stream begin, if it may overtake, once all blocks of this
 * one have called it or ended. */
void emulated_let_next_begin(void);
/* Waits for the end of the kernel that this one has overtaken, if it has. */
void emulated_await_kernel_before(void);

/* Shared memory for a variable, which the address `key` names. */
void *emulated_shared(const void *key, size_t bytes);
void *emulated_dynamic_shared(void);

/* A launch: copies nothing, frees `arguments` when the kernel is not needed any more. An error is
 * cudaGetLastError's. */
struct emulated_kernel {
    const void *kernel;
    const char *launcher; /* the function of the host that launches it, instead of a name */
    void (*call)(void *arguments);
    void (*release)(void *arguments);
    void *arguments;
    dim3 blocks, threads;
    size_t shared_bytes;
    int overtakes; /* it may begin when the kernel before it lets it */
    struct CUstream_st *stream;
};
void emulated_launch(const struct emulated_kernel *launch);

#ifdef __cplusplus
}
#endif

#endif
