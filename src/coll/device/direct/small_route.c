/* SPDX-License-Identifier: BSD-3-Clause */
/* small_route.c - whether operations on a route are small, which all ranks find alike. */
#include "coll/device/direct/small_route.h"

#include "base/jitter.h"
#include "core/comm.h"
#include "kernels/small_parts.h"

/* Pairs of all ranks; with --enable-jitter small tests go both ways. Of a single rank, or where
 * rows, all their fields together, are no multiple of 16 bytes, FEW_PAIRS are the most. In a small
 * routing each block counts all pairs. */
enum {
    MOST_PAIRS = EPX_JITTERS ? 1 << 7 : 1 << 16,
    MOST_SCALED_PAIRS = EPX_JITTERS ? 1 << 7 : 1 << 15,
    FEW_PAIRS = EPX_JITTERS ? 1 << 7 : 1 << 13,
    MOST_NUMBERED_PAIRS = 1 << 12
};

static int64_t pairs_of(const struct epx_device *device, const struct epx_plan_shape *shape)
{
    return (int64_t)device->comm->size * shape->max_tokens * shape->top_k;
}

int epx_has_few_pairs(const struct epx_device *device, const struct epx_plan_shape *shape)
{
    return device->bank && device->comm->size <= EPX_SMALL_RANKS &&
           shape->top_k <= EPX_SMALL_TOP_K && pairs_of(device, shape) <= MOST_PAIRS;
}

static int64_t most_pairs(const struct epx_device *device, enum epx_verb verb, int64_t row_bytes)
{
    if (device->comm->size == 1 || row_bytes % 16)
        return FEW_PAIRS;
    return verb == EPX_VERB_COMBINE_BACKWARD ? MOST_SCALED_PAIRS : MOST_PAIRS;
}

/*
 * Whether one launch takes less time than two. docs/performance.md has the measurements: on one
 * rank, where nothing is on a wire, and for a combine backward the bytes of a rank's rows at its
 * experts count. Ranks find it alike: it goes by what comes to each on average.
 */
int epx_small_pays(const struct epx_device *device, const struct epx_plan_shape *shape,
                   enum epx_verb verb, int64_t row_bytes)
{
    enum { MOST_BYTES = 64 << 20 };
    const int ranks = device->comm->size;

    if (epx_verb_routes(verb))
        return 1;
    if (pairs_of(device, shape) > most_pairs(device, verb, row_bytes))
        return 0;
    if (ranks > 1 && verb != EPX_VERB_COMBINE_BACKWARD)
        return 1;
    return pairs_of(device, shape) / ranks * row_bytes <= MOST_BYTES;
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
