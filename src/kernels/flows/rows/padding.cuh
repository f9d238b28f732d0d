/* SPDX-License-Identifier: BSD-3-Clause */
/* padding.cuh - zeros to the rows of a receive buffer that nothing arrives in. */
#ifndef EPX_KERNELS_FLOWS_ROWS_PADDING_CUH
#define EPX_KERNELS_FLOWS_ROWS_PADDING_CUH

#include "kernels/flows/rows/fields.cuh"

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

#endif
