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

#include "epx_perf/bench/perf_bench.h"
#include "epx_perf/bench/perf_number.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/peer/peer_kinds.h"
#include "epx_perf/peer/perf_peer.h"
#include "epx_perf/space/perf_alloc.h"
#include "epx_perf/space/perf_buffer.h"
#include "epx_perf/space/perf_space.h"
#include "epx_perf/space/perf_spaces.h"
#include "epx_perf/space/perf_time.h"

struct perf_expected_row {
    int32_t source, token, choice; /* source -1: padding */
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

const struct perf_verb *perf_verb_find(const char *name);

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
