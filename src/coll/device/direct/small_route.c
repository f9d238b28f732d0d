/* SPDX-License-Identifier: BSD-3-Clause */
/* small_route.c - whether operations on a route are small, which all ranks find alike. */
#include "coll/device/direct/small_route.h"

#include "base/jitter.h"
#include "core/comm.h"
#include "kernels/small_parts.h"

/* With --enable-jitter small tests go both ways. */
enum { MOST_PAIRS = EPX_JITTERS ? 1 << 7 : EPX_SMALL_PAIRS };

int epx_has_few_pairs(const struct epx_device *device, const struct epx_plan_shape *shape)
{
    int64_t ranks = device->comm->size;

    return device->bank && ranks <= EPX_SMALL_RANKS && shape->top_k <= EPX_SMALL_TOP_K &&
           ranks * shape->max_tokens * shape->top_k <= MOST_PAIRS;
}

/* Whether what a block of a small routing knows fits into its shared memory. */
static int fits_in_a_block(const struct epx_device_plan *plan, int32_t ranks)
{
    struct epx_small_parts parts = epx_small_parts_of(plan, ranks);

    return epx_small_bytes(&parts) <= EPX_SMALL_BYTES;
}

int epx_is_small_route(const struct epx_device *device, const struct epx_device_plan *plan)
{
    int64_t ranks = device->comm->size;

    return epx_has_few_pairs(device, &plan->shape) &&
           plan->shape.num_experts <= EPX_SMALL_EXPERTS &&
           ranks * plan->shape.max_tokens <= EPX_SMALL_TOKENS &&
           ranks * epx_num_counts(plan, (int32_t)ranks) <= EPX_SMALL_COUNTS &&
           fits_in_a_block(plan, (int32_t)ranks);
}
