/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * record_lists.cuh - the records that a block sends. Those for a rank are one run of its records,
 * and their pairs one run of its pairs. Where they fit, a block builds its runs in shared memory
 * and then stores each as a whole, 512 bytes a warp; else pairs and records are stored one by one.
 */
#ifndef EPX_KERNELS_ROUTING_RECORD_LISTS_CUH
#define EPX_KERNELS_ROUTING_RECORD_LISTS_CUH

#include "kernels/routing/pairs.cuh"

/* What a block and those before it have counted. */
struct block_counters {
    int32_t *own, *before;
};

/* Where records and pairs for each rank are written by their numbers; in shared memory. */
struct record_lists {
    char *records[EPX_MOST_DEVICE_RANKS];
    char *pairs[EPX_MOST_DEVICE_RANKS];
};

/* A run of the block: its first number, and how many. */
struct run_of_block {
    int32_t first, num;
};

/* What the block has counted, and the blocks before it. */
static __device__ __forceinline__ struct run_of_block run_of(const struct block_counters &counters,
                                                             int32_t counter)
{
    return {counters.before[counter], counters.own[counter]};
}

static __device__ __forceinline__ struct run_of_block
records_for(const struct epx_route_tokens &a, const struct block_counters &counters, int32_t rank)
{
    return run_of(counters, a.plan.shape.num_experts + rank);
}

static __device__ __forceinline__ struct run_of_block
pairs_for(const struct epx_route_tokens &a, const struct block_counters &counters, int32_t rank)
{
    return run_of(counters, num_counts(a) + rank);
}

/* Where this rank's records lie at a rank, and behind them its pairs. */
static __device__ __forceinline__ char *records_at(const struct epx_route_tokens &a,
                                                   const struct rank_table &table, int32_t rank)
{
    return table.records[rank] + a.comm.rank * a.plan.record_share;
}

static __device__ __forceinline__ char *pairs_at(const struct epx_route_tokens &a,
                                                 const struct rank_table &table, int32_t rank)
{
    return records_at(a, table, rank) +
           a.plan.shape.max_tokens * (int64_t)sizeof(struct epx_wire_record);
}

/* Bytes of a rank's runs in shared memory: records, a gap and pairs, which keep their place within
 * 16 bytes. */
static __device__ __forceinline__ uint32_t bytes_for(const struct epx_route_tokens &a,
                                                     const struct block_counters &counters,
                                                     int32_t rank)
{
    return (uint32_t)records_for(a, counters, rank).num * (uint32_t)sizeof(struct epx_wire_record) +
           ((uint32_t)pairs_for(a, counters, rank).num + 3) / 2 * 16;
}

/* Once the counts of the blocks before are known: where the block writes; stage is NULL if its runs
 * may be too long. */
static __device__ void place_lists(const struct epx_route_tokens &a, const struct rank_table &table,
                                   const struct block_counters &counters, char *stage,
                                   struct record_lists &lists)
{
    const int64_t record = sizeof(struct epx_wire_record), pair = sizeof(struct epx_wire_pair);

    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x) {
        struct run_of_block records = records_for(a, counters, r),
                            pairs = pairs_for(a, counters, r);
        char *to = stage;

        lists.records[r] = records_at(a, table, r);
        lists.pairs[r] = pairs_at(a, table, r);
        if (!stage)
            continue;
#pragma unroll 1
        for (int32_t before = 0; before < r; before++)
            to += bytes_for(a, counters, before);
        lists.records[r] = to - records.first * record;
        to += records.num * record + pairs.first % 2 * pair;
        lists.pairs[r] = to - pairs.first * pair;
    }
}

/* Warps that share a run, lanes by the number among all: copies it, of which both ends lie alike
 * within 16 bytes. */
static __device__ __forceinline__ void copy_run(char *to, const char *from, int32_t bytes,
                                                int32_t lane, int32_t lanes)
{
    const int32_t head = bytes ? (int32_t)((uintptr_t)to & 8) : 0, body = (bytes - head) & ~15;

    if (lane == 0 && head)
        *(int2 *)(void *)to = *(const int2 *)(const void *)from;
    if (lane == 0 && head + body < bytes)
        *(int2 *)(void *)(to + head + body) = *(const int2 *)(const void *)(from + head + body);
#pragma unroll 1
    for (int32_t at = head + 16 * lane; at < head + body; at += 16 * lanes)
        *(int4 *)(void *)(to + at) = *(const int4 *)(const void *)(from + at);
}

/* The whole block: stores the runs that it has built. */
static __device__ void send_lists(const struct epx_route_tokens &a, const struct rank_table &table,
                                  const struct block_counters &counters,
                                  const struct record_lists &lists)
{
    const int32_t record = sizeof(struct epx_wire_record), pair = sizeof(struct epx_wire_pair);
    const int32_t runs = 2 * a.comm.num_ranks, warp = (int32_t)threadIdx.x / EPX_WARP;
    const int32_t warps = (int32_t)blockDim.x / EPX_WARP;
    const int32_t share = runs < warps ? warps / runs : 1;
    const int32_t lane = warp % share * EPX_WARP + lane_id();

    __syncthreads();
#pragma unroll 1
    for (int32_t i = warp / share; i < runs; i += warps / share) {
        int32_t r = i / 2;
        bool of_pairs = i % 2;
        int32_t bytes = of_pairs ? pair : record;
        struct run_of_block run =
            of_pairs ? pairs_for(a, counters, r) : records_for(a, counters, r);
        char *to = of_pairs ? pairs_at(a, table, r) : records_at(a, table, r);
        const char *from = of_pairs ? lists.pairs[r] : lists.records[r];

        copy_run(to + (int64_t)run.first * bytes, from + (int64_t)run.first * bytes,
                 run.num * bytes, lane, share * EPX_WARP);
    }
}

#endif
