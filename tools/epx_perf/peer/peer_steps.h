/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_steps.h - a peer's state, and the steps that depend on what it is made of:
 * peer_mpi.c on hosts, peer_staged.c and peer_nccl.c on GPUs; perf_peer.c puts them together.
 */
#ifndef EPX_PERF_PEER_STEPS_H
#define EPX_PERF_PEER_STEPS_H

#include "epx_perf/epx_perf.h"

struct perf_peer;

struct perf_peer_steps {
    int (*open)(void); /* once in a run: 0, or -1 on all ranks; may be NULL, as close */
    void (*close)(void);
    void (*create)(struct perf_peer *peer); /* peer->state */
    void (*free)(struct perf_peer *peer);
    void (*sort_pairs)(struct perf_peer *peer);      /* place and counts_out */
    void (*exchange_counts)(struct perf_peer *peer); /* counts_in; images of both */
    void (*take_runs)(struct perf_peer *peer);       /* from their image; may be NULL */
    /* alltoallv's rows to and from each rank: [size], for the host */
    void (*exchange_row_counts)(struct perf_peer *peer, const int64_t **to, const int64_t **from);
    void (*pack)(struct perf_peer *peer);            /* tokens to packed */
    void (*exchange_rows)(struct perf_peer *peer, const void *from, void *to, int back);
    void (*group)(struct perf_peer *peer, int back); /* blocks to grouped */
    void (*sum)(struct perf_peer *peer);             /* packed to sums */
};

extern const struct perf_peer_steps perf_peer_mpi, perf_peer_staged;
extern const struct perf_peer_steps perf_peer_nccl, perf_peer_nccl_alltoall;

/* Rows that an expert here has from one rank. */
struct perf_expert_rows {
    int64_t place; /* the first, among those by (expert, source) */
    int64_t block; /* among those by (source, expert) */
    int64_t num;
};

enum { PERF_CUDA_MOST_EXPERTS = 8192 };

struct perf_peer_kind {
    const char *name;
    const struct perf_peer_steps *steps;
    const char *memory;   /* where it works */
    int blocks_only;      /* rows stay by (source, expert) */
    int counted;          /* counts are known before, so neither route nor counts are timed */
    int even;             /* alltoallv of equal counts alone */
    int64_t most_experts; /* 0: any number */
};

struct perf_peer {
    struct perf_bench *bench;
    const struct perf_load *load;
    const struct perf_peer_kind *kind;
    void *state;
    int num_local, most_local;               /* experts here, and of the rank that has most */
    struct perf_buffer place;                /* int64_t[pairs] row in packed; -1: no expert */
    struct perf_buffer counts_out, counts_in;/* int[size][most_local] rows of each expert */
    struct perf_buffer runs;                 /* struct perf_expert_rows[num_local][size] */
    int *send_counts, *send_displs, *recv_counts, *recv_displs; /* [size] rows */
    struct perf_buffer packed;               /* [pairs] rows at home */
    struct perf_buffer blocks;               /* rows by (source, expert) */
    struct perf_buffer grouped;              /* rows by (expert, source) */
    struct perf_buffer *rows;                /* grouped, or blocks if they stay so */
    struct perf_buffer sums;
};

#endif
