/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_ceiling.c - the rate at which all GPUs at once can store rows into each other's memory,
 * by plain kernels on memory that CUDA alone shares: neither EPX nor NCCL takes part. It is the
 * best median among a few numbers of blocks.
 */
#include "epx_perf/space/perf_ceiling.h"

#include <stdlib.h>

#include "epx_perf/space/perf_alloc.h"
#include "epx_perf/space/perf_kernels.h"
#include "epx_perf/space/perf_must.h"
#include "epx_perf/space/perf_time.h"
#include "ranks/ranks.h"

enum {
    STORED_BYTES = 256 << 20, /* by each rank in one launch */
    LAUNCHES = 4,             /* in a timing, so that ranks that start late matter little */
    REPETITIONS = 11,
    WARM_UP = 3
};

static const int blocks_tried[] = {8, 16, 32, 64, 132};

/* Each rank has room for the rows of every rank; to[r] is this rank's room on rank r. */
static void map_peers(char *mine, struct perf_stores *stores)
{
    cudaIpcMemHandle_t handle, *handles = perf_alloc(stores->size, sizeof(*handles));
    int64_t offset = stores->rank * stores->rows * PERF_STORE_ROW_BYTES;

    perf_must(cudaIpcGetMemHandle(&handle, mine), "cudaIpcGetMemHandle");
    ranks_allgather(&handle, handles, sizeof(handle));
    for (int r = 0; r < stores->size; r++) {
        void *base = mine;

        if (r != stores->rank)
            perf_must(cudaIpcOpenMemHandle(&base, handles[r], cudaIpcMemLazyEnablePeerAccess),
                      "cudaIpcOpenMemHandle");
        stores->to[r] = (char *)base + offset;
    }
    free(handles);
}

static void unmap_peers(struct perf_stores *stores)
{
    int64_t offset = stores->rank * stores->rows * PERF_STORE_ROW_BYTES;

    for (int r = 0; r < stores->size; r++)
        if (r != stores->rank)
            perf_must(cudaIpcCloseMemHandle(stores->to[r] - offset), "cudaIpcCloseMemHandle");
    ranks_barrier();
}

static double time_stores(const struct perf_space *space, const struct perf_stores *stores,
                          int blocks)
{
    double times[REPETITIONS];

    for (int i = -WARM_UP; i < REPETITIONS; i++) {
        double time;

        ranks_barrier();
        space->start_clock();
        for (int j = 0; j < LAUNCHES; j++)
            perf_launch_stores(stores, blocks, space->stream());
        time = space->stop_clock() / LAUNCHES;
        if (i >= 0)
            times[i] = time;
    }
    return perf_summarize(times, REPETITIONS).median;
}

double perf_ceiling(const struct perf_space *space)
{
    struct perf_stores stores = {{NULL}, 0, 0, 0};
    double best = 0, bytes;
    char *mine;

    stores.rank = ranks_own();
    stores.size = ranks_num();
    if (stores.size < 2 || stores.size > PERF_MOST_GPUS)
        return 0;
    stores.rows = STORED_BYTES / PERF_STORE_ROW_BYTES / (stores.size - 1);
    bytes = (double)(stores.rows * (stores.size - 1) * PERF_STORE_ROW_BYTES);
    mine = space->alloc(stores.rows * stores.size * PERF_STORE_ROW_BYTES);
    map_peers(mine, &stores);
    for (size_t i = 0; i < sizeof(blocks_tried) / sizeof(*blocks_tried); i++) {
        double rate = bytes / time_stores(space, &stores, blocks_tried[i]);

        best = rate > best ? rate : best;
    }
    unmap_peers(&stores);
    space->free(mine);
    return best;
}
