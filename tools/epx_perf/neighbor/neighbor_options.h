/* SPDX-License-Identifier: BSD-3-Clause */
/* neighbor_options.h - what epx_perf neighbor is asked to do. */
#ifndef EPX_PERF_NEIGHBOR_OPTIONS_H
#define EPX_PERF_NEIGHBOR_OPTIONS_H

#include "epx_perf/neighbor/neighbor_ways.h"
#include "epx_perf/space/perf_space.h"

struct neighbor_options {
    int64_t least, most; /* bytes of a row */
    int iterations, warm_up, settle, check, batch, least_time, graph, help;
    const char *peer, *json;
    const struct perf_space *space; /* NULL: there is none of that name */
};

extern const char neighbor_usage[];

/* 0, or -1: rank 0 has said what is wrong. */
int neighbor_read_options(int argc, char **argv, int rank, struct neighbor_options *options);
/* Whether the options ask for a way. */
int neighbor_is_wanted(const struct neighbor_options *options, const struct neighbor_way *way);

#endif
