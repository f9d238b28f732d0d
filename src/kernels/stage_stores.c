/* SPDX-License-Identifier: BSD-3-Clause */
/* stage_stores.c - the way of stores into another rank's stage. */
#include "stage_stores.h"

#include "progress.h"
#include "row_copy.h"

enum {
    DEAR = 2,    /* times as slow as past the caches */
    TURNS = 256, /* of so many blocks of a size */
    TRIALS = 2,  /* so many go the other way */
    STEPS = 8,
    MOST_RISE = 4
};

static int is_timed(const struct epx_stage_stores *stores, int64_t bytes)
{
    return stores->there && bytes >= EPX_STORES_LEAST;
}

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
    int bypasses = cost[0] > DEAR * cost[1];

    if (!is_timed(stores, bytes))
        return 0;
    if (cost[1] == 0)
        return 1;
    return costs->blocks % TURNS < TRIALS ? !bypasses : bypasses;
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

void epx_stage_stores_begin(struct epx_stage_stores *stores, int64_t bytes)
{
    stores->bypasses = epx_stage_stores_choose(stores, bytes);
    stores->began_ns = is_timed(stores, bytes) ? epx_now_ns() : 0;
}

void epx_stage_stores_end(struct epx_stage_stores *stores, int64_t bytes)
{
    if (stores->bypasses)
        epx_row_copy_fence();
    if (stores->began_ns)
        epx_stage_stores_note(stores, bytes, epx_now_ns() - stores->began_ns);
}
