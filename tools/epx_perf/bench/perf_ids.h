/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_ids.h - the expert ids of a load, by the name of the skew. */
#ifndef EPX_PERF_IDS_H
#define EPX_PERF_IDS_H

#include "epx_perf/bench/perf_load.h"

/*
 * Fills all sets of ids of a load; there is more than one only where ids are drawn. Collective: 0,
 * or -1 on all ranks if the name of the skew or its file will not do; one of the ranks has said
 * why.
 */
int perf_ids_make(const struct perf_options *options, struct perf_load *load);

#endif
