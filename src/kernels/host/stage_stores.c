/* SPDX-License-Identifier: BSD-3-Clause */
/* stage_stores.c - the way of stores into another rank's stage. */
#include "kernels/host/stage_stores.h"

#include "base/clock.h"
#include "kernels/host/row_copy.h"

static const float dear = 1.5F; /* times as slow as past the caches */

enum {
    STEPS = 8,    /* a higher cost is believed in so many steps */
    MOST_RISE = 4 /* a cost above so many times the known one counts as that */
};

static int size_of(int64_t bytes)
{
    int size = 0;

    while (size < EPX_STORES_SIZES - 1 && bytes >= (int64_t)EPX_STORES_LEAST * 4 << 2 * size)
        size++;
    return size;
}

int epx_stage_stores_choose(const struct epx_stage_stores *stores, int64_t bytes)
{
    const struct epx_store_costs *costs = &stores->costs[size_of(bytes)];
    const float *cost = costs->ns_per_byte;
    int bypasses = cost[0] > dear * cost[1];

    if (cost[1] == 0)
        return 1;
    return costs->blocks % EPX_STORES_TURN < EPX_STORES_TRIALS ? !bypasses : bypasses;
}

/* A lower cost is believed at once; a higher one, which an interrupt may have caused, in steps. */
void epx_stage_stores_note(struct epx_stage_stores *stores, int64_t bytes, int64_t ns)
{
    struct epx_store_costs *costs = &stores->costs[size_of(bytes)];
    float *known = &costs->ns_per_byte[stores->bypasses];
    float cost = (float)(ns > 0 ? ns : 1) / (float)bytes;

    costs->blocks++;
    if (*known > 0 && cost > *known * MOST_RISE)
        cost = *known * MOST_RISE;
    *known = *known > 0 && cost > *known ? *known + (cost - *known) / STEPS : cost;
}

void epx_stage_stores_begin(struct epx_stage_stores *stores, int64_t rows, int64_t row_bytes)
{
    int64_t bytes = rows * row_bytes;
    int timed = stores->there && bytes >= EPX_STORES_LEAST && row_bytes >= EPX_BYPASS_LEAST;

    stores->bytes = timed ? bytes : 0;
    stores->bypasses = timed && epx_stage_stores_choose(stores, bytes);
    if (timed)
        stores->began_ns = epx_now_ns();
}

/* The fence comes before the transport tells the reader: `arrived` of transport_ucx.c. */
void epx_stage_stores_end(struct epx_stage_stores *stores)
{
    if (stores->bypasses)
        epx_row_copy_fence();
    if (stores->bytes)
        epx_stage_stores_note(stores, stores->bytes, epx_now_ns() - stores->began_ns);
}
