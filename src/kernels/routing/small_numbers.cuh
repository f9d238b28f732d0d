/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_numbers.cuh - a routing of few pairs: each block, in shared memory, finds the ranks of each
 * token, numbers all pairs of each source and expert, and the rows that concern this rank, and
 * finds where slabs and sources start.
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

/* The sum over the lanes up to this one; rows of so few experts are no number that is too large. */
static __device__ int64_t scan_warp(int64_t value)
{
#pragma unroll
    for (int32_t d = 1; d < EPX_WARP; d *= 2) {
        int64_t below = __shfl_up_sync(~0u, value, d);

        value += lane_id() >= d ? below : 0;
    }
    return value;
}

/* The whole block: the sum over the threads up to this one; `sums` is shared, one for each warp. */
static __device__ int64_t scan_block(int64_t value, int64_t *sums)
{
    const int32_t warp = (int32_t)threadIdx.x / EPX_WARP, warps = (int32_t)blockDim.x / EPX_WARP;
    int64_t through = scan_warp(value);

    if (lane_id() == EPX_WARP - 1)
        sums[warp] = through;
    __syncthreads();
    if (warp == 0) {
        int64_t sum = scan_warp(lane_id() < warps ? sums[lane_id()] : 0);

        __syncwarp();
        if (lane_id() < warps)
            sums[lane_id()] = sum;
    }
    __syncthreads();
    return (warp ? sums[warp - 1] : 0) + through;
}

/* Pairs of an expert from the sources before the given one. */
static __device__ int64_t pairs_from(const struct epx_route_tokens &a, const struct offsets &o,
                                     int32_t expert, int32_t end_source)
{
    int64_t pairs = 0;

#pragma unroll 4
    for (int32_t s = 0; s < end_source; s++)
        pairs += counts_from(a, o, s)[expert];
    return pairs;
}

/* Expert-major: where all slabs start, those of all ranks behind each other; returns the end. */
static __device__ int64_t line_up_slabs(const struct epx_route_tokens &a, const struct offsets &o)
{
    __shared__ int64_t sums[EPX_WARP];
    const int32_t experts = a.plan.shape.num_experts;
    int64_t start = 0;

    for (int32_t first = 0; first < experts; first += (int32_t)blockDim.x) {
        int32_t expert = first + (int32_t)threadIdx.x;
        int64_t pairs = expert < experts ? pairs_from(a, o, expert, a.comm.num_ranks) : 0;
        int64_t slab = epx_slab_rows(&a.plan.shape, pairs);
        int64_t through = scan_block(slab, sums);

        if (expert < experts)
            o.base[expert] = start + through - slab;
        start += sums[blockDim.x / EPX_WARP - 1];
        __syncthreads();
    }
    return start;
}

/* The whole block, where slabs are of fixed size: a rank needs as many rows for each expert as the
 * fullest of its experts has pairs. */
static __device__ EPX_COLD void need_fullest(const struct epx_route_tokens &a,
                                             const struct rank_table &table, struct offsets &o)
{
    __syncthreads();
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x)
        o.required[r] = 0;
    __syncthreads();
    for (int32_t e = (int32_t)threadIdx.x; e < a.plan.shape.num_experts; e += (int32_t)blockDim.x) {
        int32_t rank = table.owner[e],
                num = table.first_expert[rank + 1] - table.first_expert[rank];
        int64_t pairs = pairs_from(a, o, e, a.comm.num_ranks);

        atomicMax((unsigned long long *)&o.required[rank],
                  (unsigned long long)epx_required_rows(&a.plan.shape, num, 0, pairs));
    }
}

/* The whole block, expert-major: what each rank needs, and where in its slabs pairs of this rank,
 * and here those of each source, start. */
static __device__ void place_slabs(const struct epx_route_tokens &a, const struct rank_table &table,
                                   struct offsets &o)
{
    const int32_t experts = a.plan.shape.num_experts, ranks = a.comm.num_ranks;
    int64_t end = line_up_slabs(a, o);

    for (int32_t r = (int32_t)threadIdx.x; r < ranks; r += (int32_t)blockDim.x) {
        int32_t first = table.first_expert[r], next = table.first_expert[r + 1];

        o.row_base[r] = first < experts ? o.base[first] : end;
        o.required[r] = (next < experts ? o.base[next] : end) - o.row_base[r];
    }
    __syncthreads();
    for (int32_t e = (int32_t)threadIdx.x; e < experts; e += (int32_t)blockDim.x) {
        int32_t rank = table.owner[e];
        int64_t start = o.base[e] - o.row_base[rank];

        o.base[e] = start + pairs_from(a, o, e, a.comm.rank);
        if (rank == a.comm.rank)
            place_local_expert(a, o, e, start);
    }
    if (a.plan.shape.rows_per_expert)
        need_fullest(a, table, o);
}

/* The whole block: the first rank that lacks room, -1 = none does. */
static __device__ void find_short_rank(const struct epx_route_tokens &a, struct offsets &o)
{
    const int32_t r = (int32_t)threadIdx.x;
    bool lacks = r < a.comm.num_ranks && is_short(o, r);

    if (!__syncthreads_or(lacks)) {
        if (r == 0)
            o.short_rank = -1;
    } else {
        if (r == 0)
            o.short_rank = INT32_MAX;
        __syncthreads();
        if (lacks)
            atomicMin(&o.short_rank, r);
    }
    __syncthreads();
}

/* The whole block: as find_offsets, for few experts by all threads at once. */
static __device__ void offset_small(const struct epx_route_tokens &a, struct small_routing &s)
{
    if (a.plan.shape.rank_major)
        for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x)
            s.o.required[r] = offset_rows(a, r, s.o);
    else
        place_slabs(a, s.table, s.o);
    __syncthreads();
    find_short_rank(a, s.o);
}

#endif
