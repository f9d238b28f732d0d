/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_numbers.cuh - a routing of few pairs: what a block knows of all pairs, in shared memory,
 * and how it numbers them. Each source has a column of bits for each expert and each rank, a bit
 * for each token that has a pair there; so the number of a pair or of a row, among those of its
 * source, is that of the bits before its token's. Only where a token has an expert twice a pair is
 * numbered by all pairs before it.
 */
#ifndef EPX_KERNELS_ROUTING_SMALL_NUMBERS_CUH
#define EPX_KERNELS_ROUTING_SMALL_NUMBERS_CUH

#include "kernels/routing/offsets.cuh"

enum { TWICE_WORDS = EPX_SMALL_RANKS / 32 };

/* What all blocks know of all pairs; in shared memory, as is what it points to. */
struct small_routing {
    struct offsets o;
    struct rank_table table;
    uint8_t *owner; /* as the table has it once it is filled in */
    int32_t *matrix;
    uint64_t *mask;
    uint32_t *bits;
    int16_t *ids;
    int32_t stride;              /* ids of a source */
    int32_t words;               /* of a column of bits */
    uint32_t twice[TWICE_WORDS]; /* a bit for each source of which a token has an expert twice */
    uint32_t fullest[EPX_SMALL_RANKS]; /* where slabs are of fixed size: pairs of the rank's
                                        * fullest expert */
};

/* The bits of a source's tokens that have a pair of an expert; those of a rank are in column E +
 * the rank. */
static __device__ __forceinline__ uint32_t *bits_of_token(const struct epx_route_tokens &a,
                                                          const struct small_routing &s,
                                                          int32_t source, int32_t column)
{
    const int32_t columns = a.plan.shape.num_experts + a.comm.num_ranks;

    return s.bits + (source * columns + column) * s.words;
}

/* Counts a pair of a source for its expert. */
static __device__ __forceinline__ void count_small_pair(const struct epx_route_tokens &a,
                                                        struct small_routing &s, int32_t source,
                                                        int32_t token, int32_t expert)
{
    const uint32_t bit = 1u << token % 32;

    atomicAdd(&s.matrix[source * num_counts(a) + expert], 1);
    if (atomicOr(&bits_of_token(a, s, source, expert)[token / 32], bit) & bit)
        atomicOr(&s.twice[source / 32], 1u << source % 32);
}

/* The whole warp, once all ids are there: the ranks that 32 tokens of a source go to, a lane each,
 * as masks and as columns of bits, and counted. */
static __device__ void find_ranks(const struct epx_route_tokens &a, const struct small_routing &s,
                                  int32_t source, int32_t word)
{
    const int32_t top_k = a.plan.shape.top_k, tokens = a.plan.shape.max_tokens;
    const int32_t token = word * 32 + lane_id(), experts = a.plan.shape.num_experts;
    const int16_t *ids = s.ids + source * s.stride + token * top_k;
    uint64_t mask = 0;

#pragma unroll 4
    for (int32_t k = 0; token < tokens && k < top_k; k++)
        mask |= ids[k] < 0 ? 0 : 1ULL << s.owner[ids[k]];
    if (token < tokens)
        s.mask[source * tokens + token] = mask;
#pragma unroll 1
    for (int32_t rank = 0; rank < a.comm.num_ranks; rank++) {
        uint32_t goes = __ballot_sync(~0u, mask >> rank & 1);

        if (lane_id() || !goes)
            continue;
        bits_of_token(a, s, source, experts + rank)[word] = goes;
        atomicAdd(&s.matrix[source * num_counts(a) + experts + rank], __popc(goes));
    }
}

/* The block's last warps, which have the least other work: find_ranks of all tokens. */
static __device__ void find_all_ranks(const struct epx_route_tokens &a,
                                      const struct small_routing &s)
{
    for (int32_t i = (int32_t)(blockDim.x - 1 - threadIdx.x) / EPX_WARP;
         i < a.comm.num_ranks * s.words; i += (int32_t)blockDim.x / EPX_WARP)
        find_ranks(a, s, i / s.words, i % s.words);
}

/* How many tokens of a source before this one have their bit in a column. */
static __device__ int32_t tokens_before(const struct epx_route_tokens &a,
                                        const struct small_routing &s, int32_t source,
                                        int32_t column, int32_t token)
{
    const uint32_t *bits = bits_of_token(a, s, source, column);
    const int32_t last = token / 32;
    int32_t num = __popc(bits[last] & ((1u << token % 32) - 1));

#pragma unroll 1
    for (int32_t i = 0; i < last; i++)
        num += __popc(bits[i]);
    return num;
}

/* How many pairs of a source before this one have its expert, by looking at them all. */
static __device__ EPX_COLD int32_t look_before(const struct small_routing &s, int32_t source,
                                               int32_t pair, int32_t expert)
{
    const int16_t *ids = s.ids + source * s.stride;
    int32_t num = 0;

    for (int32_t p = 0; p < pair; p++)
        num += ids[p] == expert;
    return num;
}

/* The number of a token's choice-th pair among those of its source and expert. */
static __device__ __forceinline__ int32_t number_of_pair(const struct epx_route_tokens &a,
                                                         const struct small_routing &s,
                                                         int32_t source, int32_t token,
                                                         int32_t choice, int32_t expert)
{
    return s.twice[source / 32] >> source % 32 & 1
               ? look_before(s, source, token * a.plan.shape.top_k + choice, expert)
               : tokens_before(a, s, source, expert, token);
}

/* The number of a row among those that its source has for a rank. */
static __device__ __forceinline__ int32_t number_of_row(const struct epx_route_tokens &a,
                                                        const struct small_routing &s,
                                                        int32_t source, int32_t token, int32_t rank)
{
    return tokens_before(a, s, source, a.plan.shape.num_experts + rank, token);
}

#endif
