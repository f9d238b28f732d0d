/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_steps.h - the state of a peer, and the interface of the steps that depend on what it is
 * made of: peer_mpi.c on hosts, peer_staged.c and peer_nccl.c on GPUs.
 */
#ifndef EPX_PERF_PEER_STEPS_H
#define EPX_PERF_PEER_STEPS_H

#include "epx_perf/bench/perf_bench.h"

struct perf_peer;

struct perf_peer_steps {
    /* open and close may be NULL. */
    int (*open)(void); /* once in a run: 0, or -1 on all ranks */
    void (*close)(void);
    void (*create)(struct perf_peer *peer); /* peer->state */
    void (*free)(struct perf_peer *peer);
    void (*sort_pairs)(struct perf_peer *peer);      /* fills place and counts_out */
    void (*exchange_counts)(struct perf_peer *peer); /* fills counts_in, and both images */
    void (*take_runs)(struct perf_peer *peer);       /* from the image of runs; may be NULL */
    /* The rows of an alltoallv to and from each rank: [size], in memory of the host. */
    void (*exchange_row_counts)(struct perf_peer *peer, const int64_t **to, const int64_t **from);
    void (*pack)(struct perf_peer *peer); /* tokens to packed */
    void (*exchange_rows)(struct perf_peer *peer, const void *from, void *to, int back);
    void (*group)(struct perf_peer *peer, int back); /* blocks to grouped */
    void (*sum)(struct perf_peer *peer);             /* packed to sums */
};

extern const struct perf_peer_steps perf_peer_mpi, perf_peer_staged;
extern const struct perf_peer_steps perf_peer_nccl, perf_peer_nccl_alltoall;

/* Rows that an expert here has from one rank. */
struct perf_expert_rows {
    int64_t place; /* where the first one stands among all rows by (expert, source) */
    int64_t block; /* where it stands among all rows by (source, expert) */
    int64_t num;
};

struct perf_peer_kind {
    const char *name;
    const struct perf_peer_steps *steps;
    const char *memory;   /* the name of the space that it works on */
    int by_mpi;           /* MPI must have started the ranks */
    int blocks_only;      /* rows stay by (source, expert) */
    int counted;          /* counts are learned before: neither route nor counts are timed */
    int even;             /* does nothing but an alltoallv of equal counts */
    int64_t most_experts; /* 0: any number */
};

struct perf_peer {
    struct perf_bench *bench;
    const struct perf_load *load;
    const struct perf_peer_kind *kind;
    void *state;
    int num_local, most_local;                /* experts here, and on the rank that has most */
    struct perf_buffer place;                 /* int64_t[pairs] row in packed; -1: no expert */
    struct perf_buffer counts_out, counts_in; /* int[size][most_local] rows of each expert */
    struct perf_buffer runs;                  /* struct perf_expert_rows[num_local][size] */
    int *send_counts, *send_displs, *recv_counts, *recv_displs; /* [size] rows */
    struct perf_buffer packed;                                  /* [pairs] rows at home */
    struct perf_buffer blocks;                                  /* rows by (source, expert) */
    struct perf_buffer grouped;                                 /* rows by (expert, source) */
    struct perf_buffer *rows; /* grouped; or blocks, if the kind is blocks_only */
    struct perf_buffer sums;
};

#endif
