/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_ceiling.h - how fast GPUs store into each other's memory. */
#ifndef EPX_PERF_CEILING_H
#define EPX_PERF_CEILING_H

#include "epx_perf/space/perf_space.h"

/*
 * Bytes a second that every rank stores into the others; 0 with one rank, or more than there is
 * room for. Collective.
 */
double perf_ceiling(const struct perf_space *space);

#endif
