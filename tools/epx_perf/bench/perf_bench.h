/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_bench.h - what the timed operations work on: the route and the buffers of one point. */
#ifndef EPX_PERF_BENCH_H
#define EPX_PERF_BENCH_H

#include <epx.h>

#include "epx_perf/bench/perf_load.h"
#include "epx_perf/bench/perf_options.h"
#include "epx_perf/space/perf_buffer.h"

struct perf_expected_row;
struct perf_peer;

enum { PERF_VIEW_ARRAYS = 7 };

/* What one set of ids should lead to. */
struct perf_expected {
    int64_t *ids;                   /* [size][tokens][top_k], of all ranks */
    struct perf_expected_row *rows; /* of this rank */
    int64_t num_rows, num_required;
    int32_t *slots; /* [tokens][top_k] */
};

struct perf_bench {
    const struct perf_options *options;
    struct perf_load load;
    EPX_Comm comm;
    EPX_Route route;
    EPX_Request request;
    void (*between)(struct perf_bench *); /* called between the two operations of a layer and their
                                             waits; NULL: nothing is */
    int64_t products;                     /* that it queues */
    EPX_Route_view view, seen;            /* seen: the view, its arrays as the host last saw them */
    struct perf_buffer view_arrays[PERF_VIEW_ARRAYS];
    EPX_Stream stream;
    void *graph; /* a captured batch; NULL: EPX is called */
    int set;     /* of ids that is in turn */
    struct perf_buffer ids[PERF_MOST_ID_SETS], token_weights; /* the ids and weights of the load */
    struct perf_buffer tokens, rows, row_weights, sums;
    /* tokens and rows field by field, for EPX; a row of the two above is its fields in order */
    struct perf_buffer field_tokens[EPX_MAX_FIELDS], field_rows[EPX_MAX_FIELDS];
    struct perf_buffer forward, weight_grads; /* backward: combine's input; an output */
    int64_t weights;                          /* the number of weights of a received row */
    struct perf_buffer counts, displs, recv_counts, recv_displs; /* alltoallv: int64_t[size] */
    int64_t *peer_displs;                             /* where each rank's rows to me begin */
    struct perf_expected expected[PERF_MOST_ID_SETS]; /* with checks: of each set of ids */
    struct perf_peer *peer;                           /* NULL: none */
};

/*
 * Makes route and buffers, not peer and expected rows. Collective: 0, or -1 on all ranks, one of
 * them having said why.
 */
int perf_bench_create(const struct perf_options *options, int tokens, int64_t row_bytes,
                      EPX_Comm comm, struct perf_bench *bench);
void perf_bench_free(struct perf_bench *bench);
/* Bytes of a row of a field. */
int64_t perf_field_bytes(const struct perf_bench *bench, int f);
/* Puts the set of ids of operation i in turn. It is a part of times, and takes nanoseconds. */
void perf_bench_take(struct perf_bench *bench, int64_t i);
/* The ids in turn, in the memory of the run. */
const int64_t *perf_bench_ids(const struct perf_bench *bench);
/* One operation of EPX, complete where the space completes it. */
void perf_bench_operate(struct perf_bench *bench);
/* Before a checked operation: overwrites the outputs. */
void perf_bench_poison(struct perf_bench *bench);
/* After a checked operation: makes images of the outputs. */
void perf_bench_fetch(struct perf_bench *bench);

#endif
