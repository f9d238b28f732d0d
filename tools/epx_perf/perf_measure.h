/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_measure.h - the times, and wrong rows, of one point of the sweep. */
#ifndef EPX_PERF_MEASURE_H
#define EPX_PERF_MEASURE_H

#include "epx_perf/bench/perf_bench.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/perf_error.h"
#include "epx_perf/space/perf_time.h"

struct perf_result {
    int tokens;
    int64_t row_bytes, wire_bytes, logical_bytes, wrong_rows;
    struct perf_time time[PERF_SIDES];
    double kernels;                /* of an operation, in a graph; 0: not counted */
    double compute, both, overlap; /* seconds, seconds, fraction; overlap -1: not measured */
    double gemm, gemm_beside;      /* --overlap: seconds of products alone, beside the operation */
    double errors[PERF_PARTIALS];  /* fractions, where perf_error_wanted() */
};

/* Collective; the result, all but its errors, is for rank 0. */
void perf_measure(struct perf_bench *bench, struct perf_result *result);

#endif
