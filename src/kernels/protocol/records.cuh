/* SPDX-License-Identifier: BSD-3-Clause */
/* records.cuh - how kernels walk the records of all ranks, and send the weights of pairs. */
#ifndef EPX_KERNELS_PROTOCOL_RECORDS_CUH
#define EPX_KERNELS_PROTOCOL_RECORDS_CUH

#include "kernels/args/device_comm.h"
#include "kernels/device_plan.h"
#include "kernels/warp/lanes.cuh"

/* Stores each pair's weight to the rank that the pair travels to, at [source][token][choice]. */
static __device__ void send_pair_weights(const struct epx_device_comm &c,
                                         const struct epx_device_plan &plan, const float *weights,
                                         int32_t num_tokens)
{
    int64_t pairs = (int64_t)num_tokens * plan.shape.top_k;
    int64_t mine = (int64_t)c.rank * plan.shape.max_tokens * plan.shape.top_k;

    for (int64_t p = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; p < pairs;
         p += (int64_t)gridDim.x * blockDim.x)
        if (plan.pair_rank[p] >= 0)
            ((float *)(void *)plan.weights[plan.pair_rank[p]])[mine + p] = weights[p];
}

struct row_source {
    int32_t source;
    int64_t row;
};

/* The first of a source's records with a token not below the given one; they are in order. */
static __device__ int64_t first_of_records(const struct epx_device_plan &plan, char *records,
                                           int32_t source, int64_t num, int64_t token)
{
    int64_t low = 0, high = num;

    if (token <= 0 || token >= plan.shape.max_tokens)
        return token <= 0 ? 0 : high;
    while (low < high) {
        int64_t middle = (low + high) / 2;

        if (epx_wire_record_at(&plan, records, source, middle)->token < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static __device__ int64_t first_record(const struct epx_device_plan &plan, char *records,
                                       int32_t source, int64_t token)
{
    return first_of_records(plan, records, source, plan.view.rank_counts[source], token);
}

/* The records of all sources whose tokens are in a range; in shared memory. */
struct record_range {
    int32_t num_ranks;
    int64_t num;
    int64_t first[EPX_MOST_DEVICE_RANKS], end[EPX_MOST_DEVICE_RANKS];
};

/* One warp, where so few rows come that no sum is too large: finds all records, but for those of
 * one rank, -1 = none. The block sees them behind its next barrier. */
static __device__ void find_all_records(const struct epx_device_plan &plan, int32_t num_ranks,
                                        int32_t except, struct record_range &range)
{
    int32_t num = 0;

    for (int32_t s = lane_id(); s < num_ranks; s += EPX_WARP) {
        int32_t here = s == except ? 0 : plan.view.rank_counts[s];

        range.first[s] = 0;
        range.end[s] = here;
        num += here;
    }
    num = __reduce_add_sync(~0u, num);
    if (lane_id() == 0) {
        range.num_ranks = num_ranks;
        range.num = num;
    }
}

/* The index-th record of a range, by source. */
static __device__ struct row_source find_in_range(const struct record_range &range, int64_t index)
{
    struct row_source at = {0, index};

    while (at.row >= range.end[at.source] - range.first[at.source]) {
        at.row -= range.end[at.source] - range.first[at.source];
        at.source++;
    }
    at.row += range.first[at.source];
    return at;
}

/* The records of a range before those of a source. */
static __device__ int64_t records_before(const struct record_range &range, int32_t source)
{
    int64_t num = 0;

    for (int32_t s = 0; s < source; s++)
        num += range.end[s] - range.first[s];
    return num;
}

#endif
