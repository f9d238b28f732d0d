/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_time.h - a few numbers for the times of many iterations. */
#ifndef EPX_PERF_TIME_H
#define EPX_PERF_TIME_H

#include <mpi.h>

struct perf_time {
    double median, min, max; /* seconds, of the slowest rank in each iteration */
};

/* Over iterations, of the slowest rank in each; equal on all ranks. Collective; sorts the times. */
struct perf_time perf_summarize(MPI_Comm comm, double *times, int num);

#endif
