/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_options.h - what a run of the benchmark is asked to do. */
#ifndef EPX_PERF_OPTIONS_H
#define EPX_PERF_OPTIONS_H

#include <epx.h>

struct perf_peer_kind;
struct perf_space;
struct perf_verb;

/* What allocated a buffer. */
enum perf_place { PERF_PLACE_HEAP, PERF_PLACE_WINDOW };

/* The most sets of expert ids that operations route with in turn. */
enum { PERF_MOST_ID_SETS = 10 };

struct perf_span {
    int64_t min, max;
};

/* One array of the rows of a dispatch of fields. */
struct perf_field {
    EPX_Datatype datatype;
    int count;
};

struct perf_options {
    const struct perf_verb *verb;
    struct perf_span tokens;    /* of each rank */
    struct perf_span row_bytes; /* min 0: `hidden` elements */
    int64_t hidden;
    int64_t top_k, experts, alignment, iterations, warmup, seed, tests;
    int64_t rows_per_expert; /* of a slab; 0: as many as the fullest expert gets */
    int64_t batch;           /* operations one after the other in a timing */
    int64_t max_sms;         /* 0: the library's default */
    int id_sets;             /* of expert ids; 1: all operations have one routing */
    const char *datatype_name;
    EPX_Datatype datatype;
    int num_fields; /* 0: rows are one array of `datatype` */
    struct perf_field fields[EPX_MAX_FIELDS];
    EPX_Layout layout;
    int place; /* enum perf_place: where the rows at the experts' ranks lie */
    const struct perf_peer_kind *peer; /* NULL: none */
    const struct perf_space *space;
    const char *skew, *transport, *json;
    int full, check, graph, ceiling, overlap, usage, explain;
    char command_line[1024]; /* as it was given, as far as it fits */
};

#endif
