/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_must.c - says which call of CUDA failed and why, and ends the job. */
#include "epx_perf/space/perf_must.h"

#include <stdio.h>

#include "ranks/ranks.h"

void perf_must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "epx_perf: %s: %s\n", what, cudaGetErrorString(error));
    ranks_failed();
}
