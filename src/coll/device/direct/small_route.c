/* SPDX-License-Identifier: BSD-3-Clause */
/* small_route.c - whether operations on a route are small, which all ranks find alike. */
#include "coll/device/direct/small_route.h"
#include "base/jitter.h"
#include "core/comm.h"
#include "kernels/small_parts.h"
#include "kernels/args/bank_args.h"

/* Pairs of all ranks up to which operations are small; with --enable-jitter small tests go both
 * ways. In a small routing each block counts all pairs. */
enum {
    MOST_PAIRS = EPX_JITTERS ? 1 << 7 : 1 << 16,
    MOST_SCALED_PAIRS = EPX_JITTERS ? 1 << 7 : 1 << 15,
    MOST_ODD_PAIRS = EPX_JITTERS ? 1 << 7 : 1 << 14,
    FEW_PAIRS = EPX_JITTERS ? 1 << 7 : 1 << 13,
    MOST_NUMBERED_PAIRS = 1 << 12
};

/* The most that an operation has for which one launch takes less time than more. */
struct limits {
    int64_t pairs, tokens;           /* of all ranks, of a rank */
    int64_t token_bytes, pair_bytes; /* of rows that a rank has one of for each token, each pair */
};

static const int64_t ANY = INT64_MAX, MIB = 1 << 20;

static int64_t pairs_of(const struct epx_device *device, const struct epx_plan_shape *shape)
{
    return (int64_t)device->comm->size * shape->max_tokens * shape->top_k;
}

int epx_has_few_pairs(const struct epx_device *device, const struct epx_plan_shape *shape)
{
    return device->bank && device->comm->size <= EPX_SMALL_RANKS &&
           shape->top_k <= EPX_SMALL_TOP_K && pairs_of(device, shape) <= MOST_PAIRS;
}

int epx_is_odd_row(int64_t row_bytes)
{
    return row_bytes % 16 != 0;
}

static struct limits limits_among_ranks(enum epx_verb verb, int64_t row_bytes)
{
    const int scales = verb == EPX_VERB_COMBINE_BACKWARD;

    if (epx_is_odd_row(row_bytes))
        return (struct limits){FEW_PAIRS, ANY, ANY, scales ? 64 * MIB : ANY};
    if (scales)
        return (struct limits){MOST_SCALED_PAIRS, ANY, ANY, 64 * MIB};
    return (struct limits){MOST_PAIRS, ANY, ANY, ANY};
}

/* On one rank nothing is on a wire, and an operation of more launches streams rows, which pays for
 * long ones. A combine backward of one slot a token, of whole words, is the faster in one launch
 * however many bytes there are. */
static struct limits limits_alone(enum epx_verb verb, int64_t row_bytes, int32_t top_k)
{
    struct limits most = limits_among_ranks(verb, row_bytes);

    if (verb != EPX_VERB_COMBINE_BACKWARD)
        return epx_is_odd_row(row_bytes) ? (struct limits){MOST_ODD_PAIRS, ANY, 8 * MIB, 32 * MIB}
                                         : (struct limits){MOST_PAIRS, 8192, ANY, ANY};
    if (top_k == 1 && !epx_is_odd_row(row_bytes))
        most.pair_bytes = ANY;
    return most;
}

/* Whether one launch takes less time than more; docs/performance.md has the measurements. Ranks
 * find it alike: what counts is what comes to each on average. */
int epx_small_pays(const struct epx_device *device, const struct epx_plan_shape *shape,
                   enum epx_verb verb, int64_t row_bytes)
{
    const int ranks = device->comm->size;
    const int64_t tokens = shape->max_tokens, pairs = pairs_of(device, shape);
    const struct limits most = ranks == 1 ? limits_alone(verb, row_bytes, shape->top_k)
                                          : limits_among_ranks(verb, row_bytes);

    if (epx_verb_routes(verb))
        return 1;
    return pairs <= most.pairs && tokens <= most.tokens && tokens * row_bytes <= most.token_bytes &&
           pairs / ranks * row_bytes <= most.pair_bytes;
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
