/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_cuda.h - the steps that all peers on GPUs share: those before and after their messages. */
#ifndef EPX_PERF_PEER_CUDA_H
#define EPX_PERF_PEER_CUDA_H

#include "epx_perf/peer/peer_steps.h"

/* The state of a peer on GPUs. */
struct perf_cuda_state {
    struct perf_buffer chunks, first;      /* int: arrays of struct perf_sort */
    struct perf_buffer rows_to, rows_from; /* int64_t[size]: rows of an alltoallv */
    void *messages;                        /* the state of what moves messages, where it has one */
};

void perf_cuda_create(struct perf_peer *peer);
void perf_cuda_free(struct perf_peer *peer);
void perf_cuda_sort_pairs(struct perf_peer *peer);
void perf_cuda_take_runs(struct perf_peer *peer);
void perf_cuda_pack(struct perf_peer *peer);
void perf_cuda_group(struct perf_peer *peer, int back);
void perf_cuda_sum(struct perf_peer *peer);
/* Queues a copy on the stream. */
void perf_cuda_copy(struct perf_peer *peer, void *to, const void *from, int64_t bytes);
/* Waits for the stream. */
void perf_cuda_wait(struct perf_peer *peer);

#endif
