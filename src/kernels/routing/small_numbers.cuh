/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_numbers.cuh - a routing of few pairs: each block, in shared memory, finds the ranks of each
 * token, and numbers all pairs of each source and expert, and the rows that concern this rank.
 * A source's pairs are cut into chunks, one for a warp at a time: it counts them by expert, and
 * once the counts of the chunks before are added, it numbers them, 32 at a time.
 * Rows have two tables of [R][max_tokens]: the number of each row of this rank among its rows for
 * each rank; the number of each row of each source among its rows for this rank.
 */
#ifndef EPX_KERNELS_ROUTING_SMALL_NUMBERS_CUH
#define EPX_KERNELS_ROUTING_SMALL_NUMBERS_CUH

#include "kernels/routing/small_ids.cuh"

/* The ranks of each token, a bit each, and how many tokens of each source go to each rank. */
static __device__ void find_ranks(const struct epx_route_tokens &a, const struct small_routing &s)
{
    const int32_t top_k = a.plan.shape.top_k, tokens = a.plan.shape.max_tokens;
    const int32_t num = num_counts(a);

    for (int32_t i = (int32_t)threadIdx.x; i < a.comm.num_ranks * tokens;
         i += (int32_t)blockDim.x) {
        const int32_t source = i / tokens;
        const int16_t *ids = s.ids + source * s.stride + i % tokens * top_k;
        int32_t *counts = s.matrix + source * num + a.plan.shape.num_experts;
        uint64_t mask = 0;

#pragma unroll 1
        for (int32_t k = 0; k < top_k; k++)
            if (ids[k] >= 0)
                mask |= 1ULL << s.table.owner[ids[k]];
        s.mask[i] = mask;
#pragma unroll 1
        for (; mask; mask &= mask - 1)
            atomicAdd(&counts[__ffsll((long long)mask) - 1], 1);
    }
}

/* A chunk of a source's pairs, and its counters. */
struct small_chunk {
    int32_t first, end; /* in s.ids */
    int32_t *counters;
};

static __device__ struct small_chunk chunk_of_source(const struct epx_route_tokens &a,
                                                     const struct small_routing &s, int32_t chunk)
{
    const int32_t pairs = a.plan.shape.max_tokens * a.plan.shape.top_k;
    const int32_t source = chunk / s.chunks, at = chunk % s.chunks;

    return {source * s.stride + pairs * at / s.chunks,
            source * s.stride + pairs * (at + 1) / s.chunks,
            s.counters + chunk * a.plan.shape.num_experts};
}

static __device__ void count_chunks(const struct epx_route_tokens &a, const struct small_routing &s)
{
    for (int32_t c = (int32_t)threadIdx.x / EPX_WARP; c < a.comm.num_ranks * s.chunks;
         c += (int32_t)blockDim.x / EPX_WARP) {
        struct small_chunk chunk = chunk_of_source(a, s, c);

        for (int32_t p = chunk.first + lane_id(); p < chunk.end; p += EPX_WARP)
            if (s.ids[p] >= 0)
                atomicAdd(&chunk.counters[s.ids[p]], 1);
    }
}

/* Turns counts into what the chunks before have counted; the sums go into the matrix. */
static __device__ void add_chunks(const struct epx_route_tokens &a, const struct small_routing &s)
{
    const int32_t experts = a.plan.shape.num_experts, num = num_counts(a);

    for (int32_t i = (int32_t)threadIdx.x; i < a.comm.num_ranks * experts;
         i += (int32_t)blockDim.x) {
        int32_t source = i / experts, expert = i % experts, sum = 0;
        int32_t *counter = s.counters + source * s.chunks * experts + expert;

#pragma unroll 4
        for (int32_t c = 0; c < s.chunks; c++, counter += experts) {
            int32_t here = *counter;

            *counter = sum;
            sum += here;
        }
        s.matrix[source * num + expert] = sum;
    }
}

static __device__ void number_chunks(const struct epx_route_tokens &a,
                                     const struct small_routing &s)
{
    const int32_t experts = a.plan.shape.num_experts;

    for (int32_t c = (int32_t)threadIdx.x / EPX_WARP; c < a.comm.num_ranks * s.chunks;
         c += (int32_t)blockDim.x / EPX_WARP) {
        struct small_chunk chunk = chunk_of_source(a, s, c);

#pragma unroll 1
        for (int32_t p = chunk.first + lane_id(); p - lane_id() < chunk.end; p += EPX_WARP) {
            int32_t expert = p < chunk.end ? s.ids[p] : -1;
            uint32_t same = same_key(expert, experts), below = same & lanes_below();

            if (expert >= 0)
                s.index[p] = (uint16_t)(chunk.counters[expert] + __popc(below));
            __syncwarp();
            if (expert >= 0 && below == 0)
                chunk.counters[expert] += __popc(same);
            __syncwarp();
        }
    }
}

/* One warp: numbers the rows that the tokens of a source have for a rank. */
static __device__ void number_rows_for(const struct epx_route_tokens &a,
                                       const struct small_routing &s, int32_t source, int32_t rank,
                                       uint16_t *row)
{
    const int32_t tokens = a.plan.shape.max_tokens;
    const uint64_t *mask = s.mask + source * tokens;
    int32_t before = 0;

#pragma unroll 1
    for (int32_t t = lane_id(); t - lane_id() < tokens; t += EPX_WARP) {
        bool goes = t < tokens && (mask[t] >> rank & 1);
        uint32_t lanes = __ballot_sync(~0u, goes);

        if (goes)
            row[t] = (uint16_t)(before + __popc(lanes & lanes_below()));
        before += __popc(lanes);
    }
}

static __device__ void number_small_rows(const struct epx_route_tokens &a,
                                         const struct small_routing &s)
{
    const int32_t ranks = a.comm.num_ranks, me = a.comm.rank, tokens = a.plan.shape.max_tokens;

    for (int32_t l = (int32_t)threadIdx.x / EPX_WARP; l < 2 * ranks;
         l += (int32_t)blockDim.x / EPX_WARP)
        number_rows_for(a, s, l < ranks ? me : l - ranks, l < ranks ? l : me, s.rows + l * tokens);
}

/* The whole block: all numbers of pairs and rows, and the count matrix. */
static __device__ void number_all(const struct epx_route_tokens &a, const struct small_routing &s)
{
    find_ranks(a, s);
    count_chunks(a, s);
    __syncthreads();
    add_chunks(a, s);
    number_small_rows(a, s);
    __syncthreads();
    number_chunks(a, s);
    __syncthreads();
}

#endif
