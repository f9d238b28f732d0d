/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_perf.c - what operations take when C calls them: python -m epx.perf compares Python's. */
#include "glue.h"

#include <time.h>

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Runs the operations in their order, all of them so many times; how long that took on this rank.
 * Collective. */
int epx_python_repeat(const struct epx_python_operation ops[], int num_ops, int times,
                      int64_t *nanoseconds)
{
    const int64_t begin = now_ns();

    for (int i = 0; i < times; i++)
        for (int k = 0; k < num_ops; k++)
            EPX_PYTHON_TRY(epx_python_run(&ops[k]));
    *nanoseconds = now_ns() - begin;
    return EPX_SUCCESS;
}
