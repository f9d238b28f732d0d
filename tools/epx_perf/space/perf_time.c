/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_time.c - median, minimum and maximum over iterations of the time of the slowest rank. */
#include "epx_perf/space/perf_time.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ranks/ranks.h"

double perf_seconds(void)
{
    return 1e-9 * (double)epx_now_ns();
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct perf_time perf_summarize(double *times, int num)
{
    struct perf_time time;

    ranks_max(times, num);
    qsort(times, (size_t)num, sizeof(*times), compare);
    time.min = times[0];
    time.max = times[num - 1];
    time.median = (times[(num - 1) / 2] + times[num / 2]) / 2;
    return time;
}
