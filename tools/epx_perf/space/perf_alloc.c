/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_alloc.c - host memory for the benchmark's own use. */
#include "epx_perf/space/perf_alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks.h"

void *perf_alloc(int64_t count, int64_t size)
{
    size_t bytes = (size_t)(count > 0 ? count : 1) * (size_t)size;
    char *memory = malloc(bytes);

    if (!memory) {
        fprintf(stderr, "epx_perf: no memory for %zu bytes\n", bytes);
        ranks_failed();
    }
    return memset(memory, 0, bytes);
}
