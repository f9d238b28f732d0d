/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_agree.c - whether all ranks have what a run needs. */
#include "epx_perf/space/perf_agree.h"

#include <stdio.h>

int perf_agree(MPI_Comm comm, const char *what, const char *why)
{
    int rank, size, first;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    first = why ? rank : size;
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm);
    if (first == rank)
        fprintf(stderr, "epx_perf: no %s: %s\n", what, why);
    return first < size ? -1 : 0;
}
