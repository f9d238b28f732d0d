/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_verb.h - the interface of a sub-command: what it is, and functions that do it. */
#ifndef EPX_PERF_VERB_H
#define EPX_PERF_VERB_H

#include <stdint.h>

struct perf_bench;
struct perf_peer;

/* What the loop alternates. */
enum perf_side { PERF_EPX, PERF_PEER, PERF_COPY, PERF_BARRIER, PERF_SIDES };

struct perf_verb {
    const char *name;
    int routes;       /* an operation routes: another set of ids each */
    int sums;         /* rows are numbers that are added up */
    int spreads;      /* tokens become rows: the copy side copies tokens to rows */
    int gathers;      /* rows become tokens: the copy side copies rows to tokens */
    int waits;        /* start() waits for a part of the work: on the host nothing overlaps it */
    int backward;     /* the backward pass of a dispatch or combine that ran once before */
    int takes_fields; /* rows may be several arrays */
    int by_pairs;     /* the user packs a row for each pair: no unique rows */
    void (*prepare)(struct perf_bench *bench); /* once, untimed */
    void (*start)(struct perf_bench *bench);   /* all but the wait for bench->request */
    void (*peer)(struct perf_peer *peer);      /* NULL: no peer does this verb */
    int64_t (*check)(const struct perf_bench *bench, enum perf_side side); /* wrong rows here */
};

#endif
