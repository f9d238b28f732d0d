/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_shape.h - what the plans of both memory spaces have in common. */
#ifndef EPX_KERNELS_PLAN_SHAPE_H
#define EPX_KERNELS_PLAN_SHAPE_H

#include <stdint.h>

/* Fixed by the route. */
struct epx_plan_shape {
    int32_t num_experts, top_k, max_tokens;
    int32_t first_expert, num_local; /* of this rank */
    int32_t alignment, index_bits;
    int32_t rank_major, drops;
    int32_t by_choice;       /* sums of ranks, and of nodes, are added by their last choice */
    int64_t rows_per_expert; /* rows of each expert's slab; 0 = as many as its pairs take */
    int64_t zeroed_padding;  /* most rows behind the pairs of a slab that a dispatch zeroes */
};

/* The arrays that the view of the route shows; EPX_Route_view has their lengths. */
struct epx_plan_view {
    int32_t *expert_counts, *rank_counts, *slots;
    int32_t *row_expert_ids, *row_tokens, *row_ranks, *row_choices; /* no choices in rank-major */
    int32_t *expert_ends, *group_sizes, *overflow;
    int64_t *expert_offsets, *num_rows, *required_rows;
    int64_t *arrived_rows; /* not shown: rows that a status reports; num_rows itself, but for slabs
                              of fixed size the sum of expert_counts */
};

#endif
