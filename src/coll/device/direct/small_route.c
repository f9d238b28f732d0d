/* SPDX-License-Identifier: BSD-3-Clause */
/* small_route.c - whether operations on a route are small, which all ranks find alike. */
#include "coll/device/direct/small_route.h"

#include "base/jitter.h"
#include "core/comm.h"
#include "kernels/small_parts.h"

/* With --enable-jitter small tests go both ways. In a small routing each block numbers all
 * pairs. */
enum { MOST_PAIRS = EPX_JITTERS ? 1 << 7 : EPX_SMALL_PAIRS, MOST_NUMBERED_PAIRS = 1 << 12 };

static int64_t pairs_of(const struct epx_device *device, const struct epx_plan_shape *shape)
{
    return (int64_t)device->comm->size * shape->max_tokens * shape->top_k;
}

int epx_has_few_pairs(const struct epx_device *device, const struct epx_plan_shape *shape)
{
    return device->bank && device->comm->size <= EPX_SMALL_RANKS &&
           shape->top_k <= EPX_SMALL_TOP_K && pairs_of(device, shape) <= MOST_PAIRS;
}

/*
 * From where on blocks on the whole GPU pay for a launch more. docs/performance.md has the
 * measurements: of a combine backward, which has a block for each pair, the pairs count, less so
 * the longer rows are; of the others on one rank, where nothing is on a wire, the bytes.
 */
int epx_small_pays(const struct epx_device *device, const struct epx_plan_shape *shape,
                   enum epx_verb verb, int64_t row_bytes)
{
    enum { LONG_ROW = 8 << 10, SHORT_PAIRS = 1 << 11, LONG_PAIRS = 1 << 12, OWN_BYTES = 64 << 20 };
    int64_t pairs = pairs_of(device, shape);

    if (verb == EPX_VERB_COMBINE_BACKWARD)
        return pairs <= (row_bytes < LONG_ROW ? SHORT_PAIRS : LONG_PAIRS);
    return device->comm->size > 1 || epx_verb_routes(verb) || pairs * row_bytes <= OWN_BYTES;
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
           pairs_of(device, &plan->shape) <= MOST_NUMBERED_PAIRS &&
           plan->shape.num_experts <= EPX_SMALL_EXPERTS &&
           ranks * plan->shape.max_tokens <= EPX_SMALL_TOKENS &&
           ranks * epx_num_counts(plan, (int32_t)ranks) <= EPX_SMALL_COUNTS &&
           fits_in_a_block(plan, (int32_t)ranks);
}
