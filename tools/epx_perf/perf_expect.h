/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_expect.h - the rows that this rank should have received. */
#ifndef EPX_PERF_EXPECT_H
#define EPX_PERF_EXPECT_H

#include "epx_perf/bench/perf_bench.h"

struct perf_expected_row {
    int32_t source, token, choice; /* source -1: padding; PERF_UNUSED: left alone */
};

enum { PERF_UNUSED = -2 };

/* Fills in what is expected of each set of ids. Collective. */
void perf_expect_create(struct perf_bench *bench);
void perf_expect_free(struct perf_bench *bench);
/* What is expected of the set of ids in turn. */
const struct perf_expected *perf_expected(const struct perf_bench *bench);
/* The rank of the expert with this id; -1 if the id names none. */
int perf_expected_rank(const struct perf_load *load, int64_t id);

#endif
