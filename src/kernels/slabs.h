/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slabs.h - where the rows of each expert lie in the receive buffer of its rank, said once for all
 * layouts, host and device. In expert-major slabs lie one behind the other, as long as their pairs
 * and alignment make them, and all share the capacity; where rows_per_expert is given each slab has
 * that many rows and room for no more pairs. Rank-major has no slabs: here it is as expert-major.
 */
#ifndef EPX_KERNELS_SLABS_H
#define EPX_KERNELS_SLABS_H

#include "kernels/layout.h"
#include "kernels/plan_shape.h"

/* Rows from the start of the slab of an expert with so many pairs to the start of the next one. */
EPX_HD int64_t epx_slab_rows(const struct epx_plan_shape *shape, int64_t pairs)
{
    int64_t most = (int64_t)shape->alignment - 1;

    return shape->rows_per_expert ? shape->rows_per_expert : (pairs + most) & ~most;
}

/* The first row that pairs of a local expert may not take, in a buffer of `capacity` rows. */
EPX_HD int64_t epx_slab_limit(const struct epx_plan_shape *shape, int32_t local, int64_t capacity)
{
    return shape->rows_per_expert ? (local + 1) * shape->rows_per_expert : capacity;
}

/* The most rows that can lie between the pairs of one slab and the next slab. */
EPX_HD int64_t epx_most_padding(const struct epx_plan_shape *shape)
{
    return shape->rows_per_expert ? shape->rows_per_expert : shape->alignment - 1;
}

/* required_rows of a rank: of its slabs, which take `rows`, the fullest has `most` pairs. */
EPX_HD int64_t epx_required_rows(const struct epx_plan_shape *shape, int32_t num_local,
                                 int64_t rows, int64_t most)
{
    return shape->rows_per_expert ? num_local * most : rows;
}

/* num_rows of a rank: those up to the end of its last slab. */
EPX_HD int64_t epx_used_rows(const struct epx_plan_shape *shape, int64_t required, int64_t capacity)
{
    return shape->rows_per_expert || required > capacity ? capacity : required;
}

#endif
