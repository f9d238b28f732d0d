/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_time.h - three numbers that sum up the times of many iterations. */
#ifndef EPX_PERF_TIME_H
#define EPX_PERF_TIME_H

/* The time, since some moment. */
double perf_seconds(void);

struct perf_time {
    double median, min, max; /* seconds */
};

/*
 * Median, minimum and maximum over iterations of the time of the slowest rank, equal on all ranks.
 * Collective; sorts the times.
 */
struct perf_time perf_summarize(double *times, int num);

#endif
