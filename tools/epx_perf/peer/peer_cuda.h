/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_cuda.h - what the peers on GPUs have in common, kernels around messages: their
 * steps, and launchers, which return at once.
 */
#ifndef EPX_PERF_PEER_CUDA_H
#define EPX_PERF_PEER_CUDA_H

#include <cuda_runtime_api.h>

#include "epx_perf/peer/peer_steps.h"

/* A stable counting sort by expert, in chunks of pairs. */
enum { PERF_CHUNK_PAIRS = 1024 };

struct perf_sort {
    const int64_t *ids; /* [pairs] */
    int64_t *place;     /* [pairs] */
    int *chunks;        /* [num_chunks][experts] pairs of an expert; then those before the chunk */
    int *first;         /* [experts] place of an expert's first pair */
    int *counts_out;    /* [size][most_local] */
    int64_t pairs;
    int num_chunks, experts, size, most_local;
};

/* Rows at home, in their packed order, and those made of them. */
struct perf_home_rows {
    char *tokens; /* or sums */
    char *packed;
    const int64_t *place;
    const float *weights;
    int64_t row_bytes;
    int num_tokens, top_k;
};

struct perf_group {
    char *grouped, *blocks;
    const struct perf_expert_rows *runs;
    int64_t row_bytes;
    int num_runs, back;
};

/* Of a peer. */
struct perf_cuda_state {
    struct perf_buffer chunks, first;       /* int: those of struct perf_sort */
    struct perf_buffer rows_to, rows_from;  /* int64_t[size]: alltoallv's */
    void *messages; /* of what moves them, where that has a state */
};

#ifdef __cplusplus
extern "C" {
#endif
void perf_cuda_create(struct perf_peer *peer);
void perf_cuda_free(struct perf_peer *peer);
void perf_cuda_sort_pairs(struct perf_peer *peer);
void perf_cuda_take_runs(struct perf_peer *peer);
void perf_cuda_pack(struct perf_peer *peer);
void perf_cuda_group(struct perf_peer *peer, int back);
void perf_cuda_sum(struct perf_peer *peer);
/* On the stream, and the wait for it. */
void perf_cuda_copy(struct perf_peer *peer, void *to, const void *from, int64_t bytes);
void perf_cuda_wait(struct perf_peer *peer);

void perf_launch_sort(const struct perf_sort *sort, cudaStream_t stream);
void perf_launch_pack(const struct perf_home_rows *rows, cudaStream_t stream);
void perf_launch_sum(const struct perf_home_rows *rows, EPX_Datatype datatype,
                     cudaStream_t stream);
void perf_launch_group(const struct perf_group *group, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
