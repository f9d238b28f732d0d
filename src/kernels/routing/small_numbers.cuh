/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_numbers.cuh - a routing of few pairs: each block, in shared memory, numbers all pairs of
 * each source and expert, and the rows that concern this rank. A source's pairs are cut into
 * chunks, which were counted by expert as they came. Once the counts of the chunks before are
 * added, a warp numbers the pairs of a chunk, 32 at a time.
 * Rows have two tables of [R][max_tokens]: the number of each row of this rank among its rows for
 * each rank; the number of each row of each source among its rows for this rank.
 */
#ifndef EPX_KERNELS_ROUTING_SMALL_NUMBERS_CUH
#define EPX_KERNELS_ROUTING_SMALL_NUMBERS_CUH

#include "kernels/routing/small_ids.cuh"

/* A chunk of a source's pairs, and its counters. */
struct small_chunk {
    int32_t first, end; /* in s.ids */
    int32_t *counters;
};

static __device__ struct small_chunk chunk_of_source(const struct epx_route_tokens &a,
                                                     const struct small_routing &s, int32_t source,
                                                     int32_t chunk)
{
    const int32_t pairs = a.plan.shape.max_tokens * a.plan.shape.top_k;
    const int32_t first = chunk << s.shift, end = first + (1 << s.shift);

    return {source * s.stride + first, source * s.stride + (end < pairs ? end : pairs),
            s.counters + (source * s.chunks + chunk) * a.plan.shape.num_experts};
}

/* Turns counts into what the chunks before have counted; the sums go into the matrix. */
static __device__ void add_chunks(const struct epx_route_tokens &a, const struct small_routing &s)
{
    const int32_t experts = a.plan.shape.num_experts, num = num_counts(a);

#pragma unroll 1
    for (int32_t expert = (int32_t)threadIdx.x; expert < experts; expert += (int32_t)blockDim.x) {
        int32_t *counter = s.counters + expert;

#pragma unroll 1
        for (int32_t source = 0; source < a.comm.num_ranks; source++) {
            int32_t sum = 0;

#pragma unroll 4
            for (int32_t c = 0; c < s.chunks; c++, counter += experts) {
                int32_t here = *counter;

                *counter = sum;
                sum += here;
            }
            s.matrix[source * num + expert] = sum;
        }
    }
}

/* The whole warp: numbers the pairs of a chunk. */
static __device__ void number_chunk(const struct small_routing &s, const struct small_chunk &chunk,
                                    int32_t experts)
{
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

/* A warp a chunk; the numbers of a source's chunks are as many as `bits` make. */
static __device__ void number_chunks(const struct epx_route_tokens &a,
                                     const struct small_routing &s)
{
#pragma unroll 1
    for (int32_t c = (int32_t)threadIdx.x / EPX_WARP; c < a.comm.num_ranks << s.bits;
         c += (int32_t)blockDim.x / EPX_WARP) {
        int32_t chunk = c & ((1 << s.bits) - 1);

        if (chunk < s.chunks)
            number_chunk(s, chunk_of_source(a, s, c >> s.bits, chunk), a.plan.shape.num_experts);
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

    for (int32_t l = (int32_t)(blockDim.x - 1 - threadIdx.x) / EPX_WARP; l < 2 * ranks;
         l += (int32_t)blockDim.x / EPX_WARP)
        number_rows_for(a, s, l < ranks ? me : l - ranks, l < ranks ? l : me, s.rows + l * tokens);
}

/* The whole block, once all pairs are counted: the count matrix, and the numbers of all rows and,
 * behind the next barrier, of all pairs. */
static __device__ void number_all(const struct epx_route_tokens &a, const struct small_routing &s)
{
    add_chunks(a, s);
    number_small_rows(a, s);
    __syncthreads();
    number_chunks(a, s);
}

#endif
