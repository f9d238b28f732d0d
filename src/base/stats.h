/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.h - counters of one communicator. */
#ifndef EPX_BASE_STATS_H
#define EPX_BASE_STATS_H

#include "base/status.h"

enum epx_distance { EPX_DISTANCE_SELF, EPX_DISTANCE_NODE, EPX_DISTANCE_NETWORK, EPX_NUM_DISTANCES };

void epx_stats_count_rows(EPX_Stats *stats, enum epx_distance distance, int64_t rows,
                          int64_t row_bytes);

/* Fills the caller's struct, which may be an older and shorter one. */
int epx_stats_copy(const EPX_Stats *stats, EPX_Stats *copy);

#endif
