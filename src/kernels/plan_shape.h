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
};

/* The arrays that the view of the route shows; EPX_Route_view has their lengths. */
struct epx_plan_view {
    int32_t *expert_counts, *rank_counts, *slots;
    int32_t *row_expert_ids, *row_tokens, *row_ranks;
    int32_t *expert_ends, *group_sizes, *overflow;
    int64_t *expert_offsets, *num_rows, *required_rows;
};

#endif
