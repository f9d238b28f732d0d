/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_overlap.h - how much of an operation a computation beside it hides. */
#ifndef EPX_PERF_OVERLAP_H
#define EPX_PERF_OVERLAP_H

#include "epx_perf/perf_measure.h"

/*
 * Collective, after perf_measure, as the options want it: a computation by the benchmark itself
 * that takes as long as the operation, or products of matrices that take longer. The operation is
 * called, not replayed, always with the first set of ids, and waited for behind them.
 */
void perf_overlap(struct perf_bench *bench, struct perf_result *result);

#endif
