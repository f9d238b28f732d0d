/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_perf.c - what operations take when C calls them: python -m epx.perf compares Python's. */
#include "glue.h"

/* Runs the operations in their order, all of them so many times; how long that took on this rank.
 * Collective. */
int epx_python_repeat(const struct epx_python_operation ops[], int num_ops, int times,
                      int64_t *nanoseconds)
{
    const int64_t begin = epx_python_now_ns();

    for (int i = 0; i < times; i++)
        for (int k = 0; k < num_ops; k++)
            EPX_PYTHON_TRY(epx_python_run(&ops[k]));
    *nanoseconds = epx_python_now_ns() - begin;
    return EPX_SUCCESS;
}
