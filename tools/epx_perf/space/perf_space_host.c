/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_space_host.c - host memory: every operation is done when it returns. */
#include <stdlib.h>
#include <string.h>

#include "epx_perf/space/perf_alloc.h"
#include "epx_perf/space/perf_space.h"
#include "epx_perf/space/perf_time.h"

enum { COMPUTE_ELEMENTS = 512, COPY_PIECE = 32768 };

static double started;

static int host_open(void)
{
    return 0;
}

static void host_close(void)
{
}

static void *host_alloc(int64_t bytes)
{
    return perf_alloc(bytes, 1);
}

static void host_fill(void *memory, int byte, int64_t bytes)
{
    memset(memory, byte, (size_t)bytes);
}

static void host_start_clock(void)
{
    started = perf_seconds();
}

static double host_stop_clock(void)
{
    return perf_seconds() - started;
}

/*
 * Each piece of the shorter side is used for as many pieces of the longer one as there are, one
 * after the other, so that like a token it crosses the memory bus once.
 */
static void host_copy(const struct perf_copy *copy)
{
    char *home = copy->home, *rows = copy->rows;
    int64_t home_bytes = copy->home_bytes, rows_bytes = copy->rows_bytes;
    int64_t times = home_bytes ? (rows_bytes + home_bytes - 1) / home_bytes : 0, done = 0;

    for (int64_t at = 0; at < home_bytes; at += COPY_PIECE)
        for (int64_t i = 0; i < times && done < rows_bytes; i++) {
            int64_t n = home_bytes - at < COPY_PIECE ? home_bytes - at : COPY_PIECE;

            n = n < rows_bytes - done ? n : rows_bytes - done;
            memcpy(copy->gathers ? home + at : rows + done, copy->gathers ? rows + done : home + at,
                   (size_t)n);
            done += n;
        }
}

/* Computes in the first cache what no compiler can leave out. */
static void host_compute(int64_t units, int spare_sms)
{
    static double x[COMPUTE_ELEMENTS];
    static volatile double sink;

    (void)spare_sms;
    for (int64_t unit = 0; unit < units; unit++) {
        for (int i = 0; i < COMPUTE_ELEMENTS; i++)
            x[i] = x[i] * 0.5 + 1;
        sink = x[unit % COMPUTE_ELEMENTS];
    }
    (void)sink;
}

const struct perf_space perf_space_host = {
    .name = "host",
    .hint = "system",
    .heap = "malloc",
    .open = host_open,
    .close = host_close,
    .alloc = host_alloc,
    .free = free,
    .fill = host_fill,
    .start_clock = host_start_clock,
    .stop_clock = host_stop_clock,
    .copy = host_copy,
    .compute = host_compute,
};
