/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_agree.c - whether all ranks have what a run needs. */
#include "epx_perf/space/perf_agree.h"

#include <stdio.h>

#include "ranks/ranks.h"

int perf_agree(const char *what, const char *why)
{
    int64_t first = ranks_least(why ? ranks_own() : ranks_num());

    if (first == ranks_own())
        fprintf(stderr, "epx_perf: no %s: %s\n", what, why);
    return first < ranks_num() ? -1 : 0;
}
