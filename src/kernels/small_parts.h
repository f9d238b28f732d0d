/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_parts.h - what the blocks of a small routing have in shared memory. The host asks whether
 * it fits before it calls a routing small.
 */
#ifndef EPX_KERNELS_SMALL_PARTS_H
#define EPX_KERNELS_SMALL_PARTS_H

#include "kernels/device_plan.h"

enum {
    EPX_IDS_AT_ONCE = 8,       /* the ids of a source are a multiple of so many */
    EPX_SMALL_CHUNKS = 32,     /* at most, of all sources, unless there is one for each */
    EPX_CHUNK_SHIFT = 6,       /* a chunk has at least 1 << 6 pairs, or all of its source */
    EPX_SMALL_COUNTERS = 8192, /* of all chunks, unless there is one for each source */
    EPX_SMALL_BYTES = 184 * 1024
};

/* Bytes of each part, in this order; each is lined up to 16. */
struct epx_small_parts {
    int32_t base;     /* int64 [E] offsets */
    int32_t from;     /* int64 [L][R], rank-major [R] */
    int32_t owners;   /* uint8 [E] */
    int32_t mask;     /* uint64 [R][max_tokens] a bit for each rank that the token goes to */
    int32_t matrix;   /* int32 [R][counts] as offsets.cuh wants it */
    int32_t counters; /* int32 [R][chunks][E] */
    int32_t ids;      /* int16 [R][stride] -1 = none */
    int32_t index;    /* uint16 [R][stride] of each pair among its source's pairs of its expert */
    int32_t rows;     /* uint16 [2 * R][max_tokens] number of each row, see small_numbers.cuh */
    int32_t chunks;   /* of each source */
    int32_t shift;    /* a chunk has 1 << shift pairs */
    int32_t bits;     /* that the number of a chunk takes */
};

EPX_HD int32_t epx_ids_stride(const struct epx_plan_shape *shape)
{
    return (int32_t)epx_round_up((int64_t)shape->max_tokens * shape->top_k, EPX_IDS_AT_ONCE);
}

/* The parts of a route whose numbers of ranks, experts and pairs are bounded, so that none is too
 * long for its type. */
EPX_HD struct epx_small_parts epx_small_parts_of(const struct epx_device_plan *plan, int32_t ranks)
{
    const struct epx_plan_shape *shape = &plan->shape;
    const int32_t experts = shape->num_experts, tokens = ranks * shape->max_tokens;
    const int32_t most = EPX_SMALL_COUNTERS / (ranks * experts);
    const int32_t pairs = shape->max_tokens * shape->top_k;
    struct epx_small_parts parts;

    parts.chunks = EPX_SMALL_CHUNKS / ranks < most ? EPX_SMALL_CHUNKS / ranks : most;
    parts.chunks = parts.chunks > 1 ? parts.chunks : 1;
    parts.shift = EPX_CHUNK_SHIFT;
    while (pairs > parts.chunks << parts.shift)
        parts.shift++;
    parts.chunks = pairs ? (pairs + (1 << parts.shift) - 1) >> parts.shift : 1;
    for (parts.bits = 0; parts.chunks > 1 << parts.bits;)
        parts.bits++;
    parts.base = (int32_t)epx_round_up(8 * experts, 16);
    parts.from =
        (int32_t)epx_round_up(8 * (shape->rank_major ? ranks : shape->num_local * ranks), 16);
    parts.mask = (int32_t)epx_round_up(8 * tokens, 16);
    parts.owners = (int32_t)epx_round_up(experts, 16);
    parts.matrix = (int32_t)epx_round_up(4 * ranks * epx_num_counts(plan, ranks), 16);
    parts.counters = (int32_t)epx_round_up(4 * ranks * parts.chunks * experts, 16);
    parts.ids = parts.index = (int32_t)epx_round_up(2 * ranks * epx_ids_stride(shape), 16);
    parts.rows = (int32_t)epx_round_up(2 * 2 * tokens, 16);
    return parts;
}

EPX_HD int32_t epx_small_bytes(const struct epx_small_parts *parts)
{
    return parts->base + parts->from + parts->mask + parts->owners + parts->matrix +
           parts->counters + parts->ids + parts->index + parts->rows;
}

#endif
