/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zero_padding_host.c - zeroes the rows behind the pairs of each slab, or behind all slabs, and
 * their weights.
 * Work: those rows. Reads expert_offsets, expert_counts, num_rows; writes rows, row_weights.
 */
#include "kernels/host/host_kernels.h"

void epx_zero_padding_host(const struct epx_plan *plan, void *rows, int64_t row_bytes,
                           float *row_weights)
{
    for (int32_t e = 0; e < plan->shape.num_local && plan->shape.zeroed_padding; e++) {
        int64_t first = plan->view.expert_offsets[e] + plan->view.expert_counts[e];
        int64_t num = plan->view.expert_offsets[e + 1] - first;

        if (num > 0 && rows && row_bytes)
            memset((char *)rows + first * row_bytes, 0, (size_t)(num * row_bytes));
        for (int64_t i = first; row_weights && i < first + num; i++)
            row_weights[i] = 0;
    }
}

void epx_zero_unused_host(const struct epx_plan *plan, void *rows, int64_t row_bytes,
                          float *row_weights, int64_t width)
{
    int64_t first = *plan->view.num_rows, num = plan->capacities[plan->rank] - first;

    if (num > 0 && rows && row_bytes)
        memset((char *)rows + first * row_bytes, 0, (size_t)(num * row_bytes));
    for (int64_t i = first * width; row_weights && i < (first + num) * width; i++)
        row_weights[i] = 0;
}
