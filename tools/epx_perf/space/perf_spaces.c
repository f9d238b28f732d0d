/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_spaces.c - the list of memory spaces: it alone asks whether there is CUDA. */
#include "epx_perf/space/perf_spaces.h"

#include <string.h>

#include "config.h"

static const struct perf_space *const spaces[] = {
    &perf_space_host,
#if HAVE_CUDA
    &perf_space_cuda,
#endif
    NULL,
};

const struct perf_space *perf_space_find(const char *name)
{
    for (int i = 0; spaces[i]; i++)
        if (strcmp(spaces[i]->name, name) == 0)
            return spaces[i];
    return NULL;
}
