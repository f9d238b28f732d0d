/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_alloc.c - host memory for the benchmark's own use. */
#include "epx_perf/space/perf_alloc.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *perf_alloc(int64_t count, int64_t size)
{
    size_t bytes = (size_t)(count > 0 ? count : 1) * (size_t)size;
    char *memory = malloc(bytes);

    if (!memory) {
        fprintf(stderr, "epx_perf: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
        exit(EXIT_FAILURE);
    }
    return memset(memory, 0, bytes);
}
