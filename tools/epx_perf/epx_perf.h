/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_perf.h - a benchmark of the collectives: epx_perf.c sweeps sizes, perf_command_line.c reads
 * the command line, perf_ids.c makes expert ids and perf_load.c rows, perf_bench.c owns what EPX
 * works on, in a space of memory (perf_space.h), perf_verbs.c is the sub-commands, perf_peer.c
 * does the same without EPX, in steps of MPI or of NCCL (peer_steps.h), perf_check.c checks rows,
 * perf_measure.c takes the times and perf_report.c prints.
 */
#ifndef EPX_PERF_H
#define EPX_PERF_H

#include <epx.h>
#include <stdio.h>

#include "epx_perf/space/perf_alloc.h"
#include "epx_perf/space/perf_buffer.h"
#include "epx_perf/space/perf_space.h"
#include "epx_perf/space/perf_spaces.h"
#include "epx_perf/space/perf_time.h"

struct perf_verb;
struct perf_peer_kind;

/* What the loop alternates. */
enum perf_side { PERF_EPX, PERF_PEER, PERF_COPY, PERF_BARRIER, PERF_SIDES };

/* What allocated a buffer. */
enum perf_place { PERF_PLACE_HEAP, PERF_PLACE_WINDOW };

struct perf_span {
    int64_t min, max;
};

struct perf_options {
    const struct perf_verb *verb;
    struct perf_span tokens;    /* of a rank */
    struct perf_span row_bytes; /* min 0: hidden elements */
    int64_t hidden;
    int64_t top_k, experts, alignment, iterations, warmup, seed, tests;
    int64_t batch;              /* operations one after the other in a timing */
    int64_t max_sms;            /* 0: as the library has it */
    const char *datatype_name;
    EPX_Datatype datatype;
    EPX_Layout layout;
    int place; /* enum perf_place of the rows at the experts' ranks */
    const struct perf_peer_kind *peer; /* NULL: none */
    const struct perf_space *space;
    const char *skew, *transport, *json;
    int full, check, graph, ceiling, usage;
};

/* One point of the sweep: the tokens of this rank, where they go, and what comes. */
struct perf_load {
    MPI_Comm comm;
    int rank, size, tokens, top_k, experts, alignment;
    int raw;                        /* rows are bytes that are only moved, not small numbers */
    EPX_Datatype datatype;
    int element_bytes, count;
    int64_t row_bytes, pairs;       /* pairs = tokens * top_k */
    int64_t *ids;                   /* [tokens][top_k] */
    float *weights;                 /* [tokens][top_k] */
    int64_t *rows_to, *rows_from;   /* [size] logical rows */
    int64_t capacity;               /* rows that this rank receives, padding included, 1 at least */
    int64_t logical_rows;           /* received by the rank that receives most */
    int64_t wire_rows;              /* to or from other ranks, of the rank that has most */
};

struct perf_expected_row {
    int32_t source, token, choice; /* source -1: padding */
};

struct perf_peer;

enum { PERF_VIEW_ARRAYS = 7 };

/* What the timed operations work on. */
struct perf_bench {
    const struct perf_options *options;
    struct perf_load load;
    EPX_Comm comm;
    EPX_Route route;
    EPX_Request request;
    EPX_Route_view view, seen;            /* seen: its arrays, as the host last saw them */
    struct perf_buffer view_arrays[PERF_VIEW_ARRAYS];
    EPX_Stream stream;
    void *graph;                          /* of a batch; NULL: EPX is called */
    struct perf_buffer ids, token_weights; /* those of the load */
    struct perf_buffer tokens, rows, row_weights, sums;
    struct perf_buffer forward, weight_grads; /* backward: what combine was given; an output */
    int64_t weights;                      /* of a received row */
    struct perf_buffer counts, displs, recv_counts, recv_displs; /* alltoallv: int64_t[size] */
    int64_t *peer_displs;                 /* where each rank's rows to me begin */
    int64_t *all_ids;                                     /* with checks: [size][tokens][top_k] */
    struct perf_expected_row *expected;                   /* with checks: the rows of this rank */
    int64_t num_expected;
    int32_t *expected_slots;                              /* with checks: [tokens][top_k] */
    struct perf_peer *peer;
};

struct perf_verb {
    const char *name;
    int sums;            /* rows are numbers that are added up */
    int spreads;         /* tokens become rows: the ceiling copies from the ones to the others */
    int gathers;         /* rows become tokens: it copies them back */
    int waits;           /* start() waits for a part of the work: on the host nothing overlaps it */
    int backward;        /* of what was dispatched or combined once */
    int by_pairs;        /* the user packs a row for each pair: no unique rows */
    void (*prepare)(struct perf_bench *bench); /* once, untimed */
    void (*start)(struct perf_bench *bench);   /* all but the wait for bench->request */
    void (*peer)(struct perf_peer *peer); /* NULL: none does it */
    int64_t (*check)(const struct perf_bench *bench, enum perf_side side); /* wrong rows here */
};

struct perf_result {
    int tokens;
    int64_t row_bytes, wire_bytes, logical_bytes, wrong_rows;
    struct perf_time time[PERF_SIDES];
    double compute, both, overlap; /* seconds, seconds, fraction; overlap -1: not measured */
};

/* Options: 0, or -1 having said why on rank 0. */
int perf_options_read(int argc, char **argv, int rank, struct perf_options *options);
void perf_usage(FILE *stream);
int perf_datatype_bytes(EPX_Datatype datatype);

/* Load. Collective: 0, or -1 on all ranks, one of them having said why. */
int perf_load_create(const struct perf_options *options, int tokens, int64_t row_bytes,
                     MPI_Comm comm, struct perf_load *load);
void perf_load_free(struct perf_load *load);
int perf_owner(const struct perf_load *load, int64_t expert);
int perf_first_expert(const struct perf_load *load, int rank);
float perf_weight(int source, int64_t pair);
/* The row of a token: bytes, or elements -1, 0, 1 times a small scale. */
void perf_fill_row(const struct perf_load *load, int source, int64_t index, double scale,
                   void *row);
/* The dot product of a row of numbers with itself. */
double perf_square_row(const struct perf_load *load, int source, int64_t index);
/* Multiplies rows of numbers by what stands for an expert. */
double perf_factor(int64_t expert);
void perf_scale_rows(const struct perf_load *load, double factor, int64_t rows, char *first);

/* Ids by name of the skew; likewise, if the name or the file will not do. */
int perf_ids_make(const struct perf_options *options, const struct perf_load *load, int64_t *ids);

/* Bench. Likewise. */
int perf_bench_create(const struct perf_options *options, int tokens, int64_t row_bytes,
                      EPX_Comm comm, struct perf_bench *bench);
void perf_bench_free(struct perf_bench *bench);
/* One operation of EPX, complete where the space completes it. */
void perf_bench_operate(struct perf_bench *bench);
/* Before a checked operation, and after it: outputs are overwritten, and images made of them. */
void perf_bench_poison(struct perf_bench *bench);
void perf_bench_fetch(struct perf_bench *bench);

const struct perf_verb *perf_verb_find(const char *name);

/* Peer: the same result without EPX. Collective but for create, free, scale and what follows. */
const struct perf_peer_kind *perf_peer_find(const char *name);
/* The one of its name that works on that memory; itself if there is none. */
const struct perf_peer_kind *perf_peer_on(const struct perf_peer_kind *peer,
                                          const struct perf_space *space);
const char *perf_peer_name(const struct perf_peer_kind *kind);
/* Whether that kind does it: 0, or why not. */
const char *perf_peer_refuses(const struct perf_options *options);
/* Once in a run: 0, or -1 on all ranks, one of them having said why. */
int perf_peer_open(const struct perf_peer_kind *kind);
void perf_peer_close(const struct perf_peer_kind *kind);
/* NULL on all ranks if the load is none for it, rank 0 having said so. */
struct perf_peer *perf_peer_create(struct perf_bench *bench);
void perf_peer_free(struct perf_peer *peer);
/* What is not timed, before the timed operations. */
void perf_peer_learn(struct perf_peer *peer);
void perf_peer_route(struct perf_peer *peer);
void perf_peer_dispatch(struct perf_peer *peer);
void perf_peer_combine(struct perf_peer *peer);
void perf_peer_layer(struct perf_peer *peer);
void perf_peer_alltoallv(struct perf_peer *peer);
void perf_peer_scale(struct perf_peer *peer);
void perf_peer_poison(struct perf_peer *peer, int rows, int sums);
/* Results, as the host sees them after fetch. */
void perf_peer_fetch(struct perf_peer *peer, int rows, int sums);
int64_t perf_peer_num_rows(const struct perf_peer *peer);
const char *perf_peer_rows(const struct perf_peer *peer);
const char *perf_peer_sums(const struct perf_peer *peer);
/* The received row of the pair that stands i-th by (expert, source, token, choice). */
const char *perf_peer_row(const struct perf_peer *peer, int64_t i);
/* to = w[0] * rows[0] + w[1] * rows[1] + ..., in float32 (float64 for float64) */
void perf_peer_sum(EPX_Datatype datatype, const char *const rows[], const float weights[], int num,
                   int count, char *to);

/* Checks: wrong rows on this rank. */
void perf_expect_create(struct perf_bench *bench); /* collective */
void perf_expect_free(struct perf_bench *bench);
int64_t perf_check_route(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_dispatch(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_sums(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_dispatch_backward(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_combine_backward(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_alltoallv(const struct perf_bench *bench, enum perf_side side);

/* Collective; the result is for rank 0. */
void perf_measure(struct perf_bench *bench, struct perf_result *result);
/* A hint in force; "unknown" if there is none. text has MPI_MAX_INFO_VAL + 1 characters. */
void perf_read_hint(EPX_Comm comm, const char *name, char *text);

/* What the whole run has in common. */
struct perf_run {
    const struct perf_options *options;
    int rank, size;
    char transport[MPI_MAX_INFO_VAL + 1];
    double ceiling; /* bytes a second; 0: not measured */
};

/* Report, on rank 0. */
void perf_report_head(const struct perf_run *run);
void perf_report_line(const struct perf_run *run, const struct perf_result *result);
/* To a new file: opened before anything is measured. NULL, or -1, having said why. */
FILE *perf_report_open(const char *name);
int perf_report_json(FILE *file, const struct perf_run *run, const struct perf_result *results,
                     int num);

#endif
