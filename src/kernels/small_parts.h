/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_parts.h - what the blocks of a small routing have in shared memory. The host asks whether
 * it fits before it calls a routing small.
 */
#ifndef EPX_KERNELS_SMALL_PARTS_H
#define EPX_KERNELS_SMALL_PARTS_H

#include "kernels/device_plan.h"

enum {
    EPX_IDS_IN_WORD = 2, /* as they travel; those of a source have room for a multiple of it */
    EPX_SMALL_BYTES = 184 * 1024
};

/* Bytes of each part, in this order; each is lined up to 16. */
struct epx_small_parts {
    int32_t base;   /* int64 [E] offsets */
    int32_t from;   /* int64 [L][R], rank-major [R] */
    int32_t owners; /* uint8 [E] */
    int32_t mask;   /* uint64 [R][max_tokens] a bit for each rank that the token goes to */
    int32_t matrix; /* int32 [R][counts] as offsets.cuh wants it */
    int32_t bits;   /* uint32 [R][E + R][words] a bit for each token, see small_numbers.cuh */
    int32_t ids;    /* int16 [R][stride] -1 = none */
    int32_t words;  /* of bits, for the tokens of a source */
};

EPX_HD int32_t epx_ids_stride(const struct epx_plan_shape *shape)
{
    return (int32_t)epx_round_up((int64_t)shape->max_tokens * shape->top_k, EPX_IDS_IN_WORD);
}

/* The parts of a route whose numbers of ranks, experts and pairs are bounded, so that none is too
 * long for its type. They take as much on all ranks. */
EPX_HD struct epx_small_parts epx_small_parts_of(const struct epx_device_plan *plan, int32_t ranks)
{
    const struct epx_plan_shape *shape = &plan->shape;
    const int32_t experts = shape->num_experts, tokens = ranks * shape->max_tokens;
    const int32_t most_local = (experts + ranks - 1) / ranks;
    struct epx_small_parts parts;

    parts.words = (shape->max_tokens + 31) / 32;
    parts.base = (int32_t)epx_round_up(8 * experts, 16);
    parts.from = (int32_t)epx_round_up(8 * ranks * (shape->rank_major ? 1 : most_local), 16);
    parts.mask = (int32_t)epx_round_up(8 * tokens, 16);
    parts.owners = (int32_t)epx_round_up(experts, 16);
    parts.matrix = (int32_t)epx_round_up(4 * ranks * epx_num_counts(plan, ranks), 16);
    parts.bits = (int32_t)epx_round_up(4 * ranks * (experts + ranks) * parts.words, 16);
    parts.ids = (int32_t)epx_round_up(2 * ranks * epx_ids_stride(shape), 16);
    return parts;
}

/* Where the matrix begins. */
EPX_HD int32_t epx_small_matrix_at(const struct epx_small_parts *parts)
{
    return parts->base + parts->from + parts->owners + parts->mask;
}

EPX_HD int32_t epx_small_bytes(const struct epx_small_parts *parts)
{
    return epx_small_matrix_at(parts) + parts->matrix + parts->bits + parts->ids;
}

#endif
