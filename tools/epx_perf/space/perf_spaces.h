/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_spaces.h - the list of memory spaces that this build has. */
#ifndef EPX_PERF_SPACES_H
#define EPX_PERF_SPACES_H

#include "epx_perf/space/perf_space.h"

/* By the name for --memory; NULL if this build has no such space. */
const struct perf_space *perf_space_find(const char *name);

#endif
