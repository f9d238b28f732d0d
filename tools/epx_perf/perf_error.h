/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_error.h - how far rounded sums are from float64 sums, with each kind of partial sums. */
#ifndef EPX_PERF_ERROR_H
#define EPX_PERF_ERROR_H

#include <stdint.h>

struct perf_options;

/* The settings of the hint epx_combine_partials. */
enum perf_partials { PERF_PARTIALS_DATATYPE, PERF_PARTIALS_FLOAT32, PERF_PARTIALS };

/* Whether a run measures errors: it checks, and its sub-command adds up rows that it is given. */
int perf_error_wanted(const struct perf_options *options);
/*
 * The largest relative error of an element on any rank, with each setting of the hint, from one
 * untimed operation each on a communicator of its own. Collective: 0, or -1 on all ranks, one of
 * them having said why.
 */
int perf_error_measure(const struct perf_options *options, int tokens, int64_t row_bytes,
                       double errors[PERF_PARTIALS]);

#endif
