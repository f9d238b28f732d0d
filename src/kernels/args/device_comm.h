/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_comm.h - what every kernel knows of its communicator. protocol/protocol.cuh explains
 * the protocol between the ranks' kernels.
 */
#ifndef EPX_KERNELS_ARGS_DEVICE_COMM_H
#define EPX_KERNELS_ARGS_DEVICE_COMM_H

#include "kernels/args/device_outcome.h"
#include "kernels/copy_queues.h"

enum { EPX_MOST_DEVICE_RANKS = 128 };

/* Counted by kernels in device memory; the host copies them. */
struct epx_device_stats {
    uint64_t rows_self, rows_node, rows_network, bytes_self, bytes_node, bytes_network,
        dropped_rows;
};

/* Counts exchanges of messages; times are by the device's clock. */
struct epx_device_exchanges {
    uint64_t num;       /* posted so far */
    uint64_t posted_ns; /* when the last one was posted */
    uint64_t waited_ns; /* sum of the times from post to arrival, as kernels saw them */
    uint64_t least_ns;  /* the shortest of these times, 0 = none has arrived */
};

/* How long kernels have waited for each rank, and in how many operations longest for it. */
struct epx_wait_tally {
    uint64_t ns[EPX_MOST_DEVICE_RANKS], operations[EPX_MOST_DEVICE_RANKS];
};

/* The waits of the operation under way, which any thread of it may raise: waits.cuh has the words.
 * A later operation begins by adding them to the tally. */
struct epx_device_waits {
    uint64_t last;                           /* the longest wait for any rank, with the rank */
    uint64_t longest[EPX_MOST_DEVICE_RANKS]; /* that for each rank */
    struct epx_wait_tally tally;
};

/* Private device memory of a communicator. Written by the kernels of one operation at a time. */
struct epx_device_state {
    uint64_t epoch;    /* operations begun and ended */
    uint64_t arrivals; /* that each source has posted in all operations */
    uint64_t credits;  /* that each source has posted in all operations */
    uint64_t barrier;  /* blocks that have come to a barrier, in all kernels */
    uint64_t rounds;   /* from here on: of the operation under way */
    uint64_t credit_rounds;
    uint64_t ended; /* blocks of the kernel under way: remarked << 48 | failed << 32 | ended; the
                          last block to end sets it to 0 */
    uint64_t sent;  /* blocks that have ended of a kernel that only sends; the kernel that takes
                          sets it to 0 */
    uint64_t taken; /* tasks that receivers have claimed (protocol/task_claims.cuh), and runs that
                          senders have; in an alltoallv pieces of own rows, and of others
                          (alltoallv/piece_turns.cuh); the last block sets both to 0 */
    uint64_t runs;
    uint64_t begun; /* blocks that send and have begun; the last block sets it to 0 */
    int32_t weighted;
    int32_t deferred; /* the next kernel moves the rows */
    int64_t rows;     /* that this rank received, where the last block to end does not know it */
    struct epx_outcome outcome;
    struct epx_outcome ids; /* bad ids, found by the routing that was the first half */
    struct epx_device_stats stats;
    struct epx_device_exchanges exchanges;
    struct epx_copy_progress copies;
    struct epx_device_waits waits;
};

/* By value in the arguments of every kernel. */
struct epx_device_comm {
    int32_t rank, num_ranks;
    int32_t blocks;      /* of the kernels that wait, or halves of them in a kernel that has halves;
                            the same on all ranks */
    int32_t most_blocks; /* of kernels that wait for nobody */
    uint64_t timeout_ns; /* 0 = for ever */
    struct epx_device_state *state;
    char *const *control;              /* [R] */
    char *own_control;                 /* this rank's control window */
    char *const *segments;             /* [segments][R] windows of EPX_Alloc_mem */
    const int32_t *node;               /* [R] node of each rank; NULL = all are on one node */
    const int32_t *place;              /* [R] place of each rank by (node, rank); NULL if node is */
    struct epx_completion *completion; /* pinned; of this operation */
    uint32_t number;
    int32_t captured; /* all captured operations share the completion, which takes errors alone */
    int32_t verb;
    int32_t half;             /* enum epx_half of request.h */
    char *ring;               /* pinned; NULL where ranks store into each other's memory */
    const uint64_t *released; /* the last exchange in the ring that is complete; NULL if kernels
                                 make the copies of exchanges */
    struct epx_copy_queues *copies; /* pinned; NULL if the proxy moves exchanges on a stream */
    struct epx_wait_tally *waits;   /* pinned; what the host reads of the tally */
    uint64_t jitter_seed;           /* --enable-jitter */
};

/*
 * What a kernel does of an operation in which some blocks send and others take what comes: both, or
 * one, so that between two kernels the operation holds no multiprocessor. phases.cuh has more.
 */
enum epx_phase { EPX_PHASE_BOTH, EPX_PHASE_SEND, EPX_PHASE_TAKE };

#endif
