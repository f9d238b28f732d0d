/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_kernels.h - launchers, which return at once, of the kernels that the peers on GPUs run
 * before and after their messages.
 */
#ifndef EPX_PERF_PEER_KERNELS_H
#define EPX_PERF_PEER_KERNELS_H

#include <cuda_runtime_api.h>

#include "epx_perf/peer/peer_steps.h"

enum { PERF_CHUNK_PAIRS = 1024 };

/* A stable counting sort of the pairs by expert, in chunks of PERF_CHUNK_PAIRS. */
struct perf_sort {
    const int64_t *ids; /* [pairs] */
    int64_t *place;     /* [pairs] */
    int *chunks;        /* [num_chunks][experts] pairs of an expert; then pairs before the chunk */
    int *first;         /* [experts] place of an expert's first pair */
    int *counts_out;    /* [size][most_local] */
    int64_t pairs;
    int num_chunks, experts, size, most_local;
};

/* Tokens or their sums at home, and the rows that are packed from or for them. */
struct perf_home_rows {
    char *tokens; /* or sums */
    char *packed;
    const int64_t *place;
    const float *weights;
    int64_t row_bytes;
    int num_tokens, top_k;
};

/* Rows by (source, expert), and rows by (expert, source): `back` moves them to the former. */
struct perf_group {
    char *grouped, *blocks;
    const struct perf_expert_rows *runs;
    int64_t row_bytes;
    int num_runs, back;
};

#ifdef __cplusplus
extern "C" {
#endif
void perf_launch_sort(const struct perf_sort *sort, cudaStream_t stream);
void perf_launch_pack(const struct perf_home_rows *rows, cudaStream_t stream);
void perf_launch_sum(const struct perf_home_rows *rows, EPX_Datatype datatype, cudaStream_t stream);
void perf_launch_group(const struct perf_group *group, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
