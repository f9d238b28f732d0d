/* SPDX-License-Identifier: BSD-3-Clause */
/* records.cuh - how kernels walk the records that came from all ranks. */
#ifndef EPX_KERNELS_PROTOCOL_RECORDS_CUH
#define EPX_KERNELS_PROTOCOL_RECORDS_CUH

#include "kernels/protocol/warp_rows.cuh"

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

/* The whole block: finds the records of tokens in [first_token, end_token). */
static __device__ void find_range(const struct epx_device_plan &plan, int32_t num_ranks,
                                  char *records, int64_t first_token, int64_t end_token,
                                  struct record_range &range)
{
    for (int32_t i = (int32_t)threadIdx.x; i < 2 * num_ranks; i += (int32_t)blockDim.x) {
        int32_t source = i / 2;

        if (i % 2)
            range.end[source] = first_record(plan, records, source, end_token);
        else
            range.first[source] = first_record(plan, records, source, first_token);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        range.num_ranks = num_ranks;
        range.num = 0;
        for (int32_t s = 0; s < num_ranks; s++)
            range.num += range.end[s] - range.first[s];
    }
    __syncthreads();
}

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

/* The slot of the i-th row that could be padding; -1 = it is none. */
static __device__ int64_t padding_slot(const struct epx_device_plan &plan, int64_t i)
{
    int64_t most = plan.shape.zeroed_padding, local = i / most;
    int64_t slot = plan.view.expert_offsets[local] + plan.view.expert_counts[local] + i % most;

    return slot < plan.view.expert_offsets[local + 1] ? slot : -1;
}

/* The whole warp: zeroes a row of padding and its weight. */
static __device__ void zero_padded(char *rows, int64_t row_bytes, float *row_weights, int64_t slot)
{
    zero_row(rows + slot * row_bytes, row_bytes);
    if (row_weights && lane_id() == 0)
        row_weights[slot] = 0;
}

static __device__ void zero_padding(const struct epx_device_plan &plan, char *rows,
                                    int64_t row_bytes, float *row_weights, struct crew crew)
{
    int64_t most = plan.shape.num_local * plan.shape.zeroed_padding;

    for (int64_t i = crew.warp; i < most; i += crew.num) {
        int64_t slot = padding_slot(plan, i);

        if (slot >= 0)
            zero_padded(rows, row_bytes, row_weights, slot);
    }
}

/* Rows of a field and their length. */
struct field_rows {
    char *rows;
    int64_t row_bytes;
};

/* Zeroes the rows that nothing arrives in, from the given one to zeroed_to, and their weights. */
static __device__ void zero_rows_from(const struct epx_dispatch_rows &a, int64_t first,
                                      const struct field_rows &to, float *row_weights,
                                      struct crew crew)
{
    for (int64_t slot = first + crew.warp; slot < a.zeroed_to; slot += crew.num) {
        zero_row(to.rows + slot * to.row_bytes, to.row_bytes);
        for (int32_t k = lane_id(); row_weights && k < a.weights_width; k += EPX_WARP)
            row_weights[slot * a.weights_width + k] = 0;
    }
}

/* Zeroes the rows that nothing arrives in from num_rows on. */
static __device__ void zero_unused(const struct epx_dispatch_rows &a, char *rows, int64_t row_bytes,
                                   float *row_weights, struct crew crew)
{
    if (a.zeroed_to)
        zero_rows_from(a, *a.plan.view.num_rows, {rows, row_bytes}, row_weights, crew);
}

/* The last step of a dispatch or combine backward of several kernels, in each block of the last. */
static __device__ void end_dispatch(const struct epx_dispatch_rows &a, bool on)
{
    if (!is_last_mover(a.comm, a.movers))
        return;
    if (on)
        count_route_rows(a.comm, a.plan, a.plan.send_rows, a.row_bytes);
    end_operation(a.comm, *a.plan.view.arrived_rows);
}

#endif
