/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_check.h - a check of each verb's results, EPX's or the peer's: wrong rows on this rank. */
#ifndef EPX_PERF_CHECK_H
#define EPX_PERF_CHECK_H

#include "epx_perf/bench/perf_bench.h"
#include "epx_perf/bench/perf_verb.h"

int64_t perf_check_route(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_dispatch(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_route_dispatch(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_sums(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_layer(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_dispatch_backward(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_combine_backward(const struct perf_bench *bench, enum perf_side side);
int64_t perf_check_alltoallv(const struct perf_bench *bench, enum perf_side side);

#endif
