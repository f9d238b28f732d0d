/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * routing_steps.cuh - the steps of a routing that are the same whether ranks store into each
 * other's memory (route_tokens.cu) or exchange messages (count_tokens.cu, send_records.cu,
 * find_slots.cu): counting and numbering, where things lie in shared memory, and the end.
 */
#ifndef EPX_KERNELS_ROUTING_ROUTING_STEPS_CUH
#define EPX_KERNELS_ROUTING_ROUTING_STEPS_CUH

#include "kernels/routing/slots.cuh"

enum {
    ROUTING_THREADS = 1024,
    MOST_SHARED_COUNTS = 32 * 1024, /* counters, later the matrix */
    MOST_SHARED_OFFSETS = 4 * 1024, /* of `base`, of `from` */
    MOST_SHARED_OWNERS = 8 * 1024,
    SUMS = 2, /* behind the counters of the warps: sums over the blocks before, and over all */
    WARPS_AT_ONCE = 8,
    BLOCKS_AT_ONCE = 12,
    ROUTING_WARPS = ROUTING_THREADS / EPX_WARP
};

/* Which parts of a routing are in dynamic shared memory; the others are in the plan. */
struct shared_parts {
    int32_t base, from; /* offsets */
    int32_t owners;     /* bytes, a multiple of 8 */
    int32_t warps;      /* warps that count; 0 = one, whose counters are in the plan */
    int32_t words;      /* of their counters */
    int32_t matrix;     /* whether the matrix takes the place of the counters later */
};

static struct shared_parts parts_of(const struct epx_route_tokens *args)
{
    int64_t ranks = args->comm.num_ranks, counts = epx_num_counts(&args->plan, (int32_t)ranks);
    int64_t fit = MOST_SHARED_COUNTS / counts - SUMS, most = ROUTING_WARPS;
    int64_t from = args->plan.shape.rank_major ? ranks : args->plan.shape.num_local * ranks;
    struct shared_parts parts;

    parts.warps = (int32_t)(fit < 0 ? 0 : fit < most ? fit : most);
    parts.base =
        args->plan.shape.num_experts <= MOST_SHARED_OFFSETS ? args->plan.shape.num_experts : 0;
    parts.from = from <= MOST_SHARED_OFFSETS ? (int32_t)from : 0;
    parts.matrix = ranks * counts <= MOST_SHARED_COUNTS;
    parts.owners = args->plan.shape.num_experts <= MOST_SHARED_OWNERS
                       ? (int32_t)epx_round_up(args->plan.shape.num_experts, 8)
                       : 0;
    parts.words = (int32_t)(parts.warps ? (parts.warps + SUMS) * counts : 0);
    if (parts.matrix && ranks * counts > parts.words)
        parts.words = (int32_t)(ranks * counts);
    return parts;
}

/* All counters but one start at 0. The last counts this rank's receive capacity, once: the totals
 * tell it to all ranks. */
static __device__ void zero_counts(const struct epx_route_tokens &a, int32_t counting_warps,
                                   int32_t *counts)
{
    int64_t num = (int64_t)(counting_warps + SUMS) * num_counts(a), last = num_counts(a) - 1;

    for (int64_t i = threadIdx.x; i < num; i += blockDim.x)
        counts[i] = i == last && blockIdx.x == 0 ? a.capacity : 0;
}

/* Zeroes what later steps add to. */
static __device__ void zero_sums(const struct epx_route_tokens &a)
{
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x)
        a.plan.send_rows[r] = a.plan.recv_rows[r] = 0;
    for (int32_t e = (int32_t)threadIdx.x; e < a.plan.shape.num_local; e += (int32_t)blockDim.x)
        a.plan.view.expert_counts[e] = 0;
    if (threadIdx.x == 0)
        *a.plan.dropped = 0;
}

/* Fills the table, by the last threads: the first ones begin the exchange meanwhile. */
static __device__ void look_up(const struct epx_route_tokens &a, uint8_t *owner,
                               struct rank_table &table)
{
    int32_t ranks = a.comm.num_ranks, experts = a.plan.shape.num_experts;
    int32_t threads = (int32_t)blockDim.x, thread = threads - 1 - (int32_t)threadIdx.x;

    for (int32_t r = thread; r < ranks; r += threads)
        table.records[r] = a.plan.records[r];
    for (int32_t e = thread; owner && e < experts; e += threads)
        owner[e] = (uint8_t)a.plan.owner[e];
    for (int32_t r = thread; r <= ranks; r += threads)
        table.first_expert[r] = epx_first_expert(r, experts, ranks);
    if (thread == 0)
        table.owner = owner;
}

static __device__ void sum_over_warps(const struct epx_route_tokens &a, int32_t counting_warps,
                                      const int32_t *counts)
{
    int32_t num = num_counts(a);

    for (int32_t i = (int32_t)threadIdx.x; i < num; i += (int32_t)blockDim.x) {
        int32_t sum = 0;

#pragma unroll 8
        for (int32_t w = 0; w < counting_warps; w++)
            sum += counts[(int64_t)w * num + i];
        a.plan.block_counts[(int64_t)blockIdx.x * num + i] = sum;
    }
}

/* Turns one counter of each warp into the sum of what the earlier warps have counted. */
static __device__ void scan_counter(int32_t *counter, int32_t num, int32_t warps)
{
    int32_t sum = 0;

    for (int32_t first = 0; first < warps; first += WARPS_AT_ONCE) {
        int32_t here[WARPS_AT_ONCE];

#pragma unroll
        for (int32_t w = 0; w < WARPS_AT_ONCE; w++)
            here[w] = first + w < warps ? counter[(int64_t)(first + w) * num] : 0;
#pragma unroll
        for (int32_t w = 0; w < WARPS_AT_ONCE; w++) {
            if (first + w < warps)
                counter[(int64_t)(first + w) * num] = sum;
            sum += here[w];
        }
    }
}

static __device__ void scan_counters(const struct epx_route_tokens &a, int32_t counting_warps,
                                     int32_t *counts)
{
    int32_t num = num_counts(a);

    for (int32_t i = (int32_t)threadIdx.x; i < num; i += (int32_t)blockDim.x)
        scan_counter(counts + i, num, counting_warps);
}

/* Sends the totals to all ranks; each block sends some of them. */
static __device__ void send_totals(const struct epx_route_tokens &a, const int32_t *total)
{
    int32_t num = num_counts(a), me = a.comm.rank;

    for (int32_t i = (int32_t)threadIdx.x; i < num; i += (int32_t)blockDim.x)
        if (i / EPX_WARP % a.comm.blocks == (int32_t)blockIdx.x)
            for (int32_t r = 0; r < a.comm.num_ranks; r++)
                ((int32_t *)(void *)a.plan.counts[r])[(int64_t)me * num + i] = total[i];
}

/*
 * The whole block: sums what the blocks before have counted, and what all have, and sends the
 * totals. Where counters are few several threads share one.
 */
static __device__ void sum_over_blocks(const struct epx_route_tokens &a, int32_t *before,
                                       int32_t *total)
{
    uint32_t num = (uint32_t)num_counts(a), shares = ROUTING_THREADS / num;

    shares = shares ? shares : 1;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < num * shares; i += ROUTING_THREADS) {
        uint32_t counter = i % num, blocks = (uint32_t)a.comm.blocks;
        int32_t sum = 0, sum_before = 0;

#pragma unroll 1
        for (uint32_t first = i / num; first < blocks; first += shares * BLOCKS_AT_ONCE) {
            int32_t there[BLOCKS_AT_ONCE];

#pragma unroll
            for (uint32_t j = 0; j < BLOCKS_AT_ONCE; j++) {
                uint32_t b = first + j * shares;

                there[j] = b < blocks ? a.plan.block_counts[(int64_t)b * num + counter] : 0;
            }
#pragma unroll
            for (uint32_t j = 0; j < BLOCKS_AT_ONCE; j++) {
                sum += there[j];
                sum_before += first + j * shares < blockIdx.x ? there[j] : 0;
            }
        }
        atomicAdd(&total[counter], sum);
        atomicAdd(&before[counter], sum_before);
    }
    __syncthreads();
    send_totals(a, total);
}

/* Where slabs are of fixed size: names the first expert of a rank whose pairs lack room. */
static __device__ EPX_COLD struct epx_outcome outcome_full(const struct epx_route_tokens &a,
                                                           const struct rank_table &table,
                                                           const struct offsets &o, int32_t rank)
{
    int32_t expert = table.first_expert[rank];
    int64_t pairs = 0;

    for (; expert < table.first_expert[rank + 1]; expert++, pairs = 0) {
        for (int32_t s = 0; s < a.comm.num_ranks; s++)
            pairs += counts_from(a, o, s)[expert];
        if (pairs > a.plan.shape.rows_per_expert)
            break;
    }
    return {
        EPX_ERR_TRUNCATE, EPX_OUTCOME_FULL, rank, 0, pairs, a.plan.shape.rows_per_expert, expert};
}

static __device__ struct epx_outcome outcome_short(const struct epx_route_tokens &a,
                                                   const struct rank_table &table,
                                                   const struct offsets &o)
{
    struct epx_outcome outcome = {EPX_ERR_TRUNCATE,
                                  EPX_OUTCOME_SHORT,
                                  o.short_rank,
                                  0,
                                  o.required[o.short_rank],
                                  o.capacity[o.short_rank],
                                  0};

    if (a.plan.shape.rows_per_expert)
        return outcome_full(a, table, o, o.short_rank);
    return outcome;
}

static __device__ EPX_COLD struct epx_outcome outcome_of_ids(const struct epx_route_tokens &a)
{
    struct epx_outcome outcome = {EPX_ERR_ARG, EPX_OUTCOME_BAD_ID, 0, 0, 0, 0, 0};
    int64_t pair = (int64_t)~a.plan.bad[1];

    if (a.plan.bad[0] == 0)
        return epx_outcome();
    outcome.rank = (int32_t)(a.plan.bad[0] < INT32_MAX ? a.plan.bad[0] : INT32_MAX);
    outcome.a = pair / a.plan.shape.top_k;
    outcome.b = pair % a.plan.shape.top_k;
    outcome.c = epx_expert_id(a.ids, a.plan.shape.index_bits, pair);
    return outcome;
}

/* The routing's own error stays for the operations on it; bad ids leave it valid. */
static __device__ void end_routing(const struct epx_route_tokens &a, const struct exchange &x,
                                   bool exchanged)
{
    struct epx_outcome outcome = x.outcome;

    *a.plan.outcome = outcome;
    if (outcome.code == EPX_SUCCESS) {
        outcome = outcome_of_ids(a);
        add_to(&a.comm.state->stats.dropped_rows, (uint64_t)*a.plan.dropped);
    }
    a.plan.bad[0] = a.plan.bad[1] = 0;
    if (a.comm.half == HALF_ROUTING)
        hand_over_routing(a.comm, x, exchanged, outcome);
    else
        end_exchange(a.comm, x, exchanged, 0, *a.plan.view.arrived_rows, outcome);
}

/*
 * The steps of a routing until this rank's totals and records are on their way, or lie where they
 * are sent from. agreed: the kernel need not wait for the ready words of all ranks.
 */
static __device__ bool count_tokens(const struct epx_route_tokens &a, struct exchange &x,
                                    const struct rank_table &table, int32_t counting_warps,
                                    int32_t *counts, bool agreed)
{
    struct chunk chunk = chunk_of(a, counting_warps, counts);
    int32_t *before = counts + (int64_t)counting_warps * num_counts(a);

    count_chunk(a, table, chunk);
    __syncthreads();
    sum_over_warps(a, counting_warps, counts);
    come_to_barrier(a.comm);
    scan_counters(a, counting_warps, counts);
    if (!agreed && !await_ready(a.comm, a.note, x, NULL))
        return false;
    if (!await_barrier(a.comm, x))
        return false;
    sum_over_blocks(a, before, before + num_counts(a));
    number_chunk(a, table, chunk, before);
    return true;
}

static __device__ void find_slots(const struct epx_route_tokens &a, struct exchange &x,
                                  const struct rank_table &table, struct offsets &o)
{
    find_offsets(a, table, o);
    if (o.short_rank >= 0 && !a.plan.shape.drops) {
        empty_view(a, o);
        if (threadIdx.x == 0)
            x.outcome = outcome_short(a, table, o);
        return;
    }
    if (routing_block(a) == 0) {
        show_counts(a, o);
        show_rows(a, o);
    }
    index_records(a, o);
    assign_slots(a, table, o);
    index_padding(a, o);
    add_kept_rows(a, o);
}

/* Where a kernel has its parts in dynamic shared memory. */
struct room {
    uint8_t *owner; /* NULL = in the plan */
    int32_t *words; /* counters, later the matrix */
};

static __device__ struct room divide_room(int64_t *shared, const struct shared_parts &parts)
{
    uint8_t *owner = (uint8_t *)(void *)(shared + parts.base + parts.from);

    return {parts.owners ? owner : NULL, (int32_t *)(void *)(owner + parts.owners)};
}

/* One thread: the offsets lie in shared memory, or in the plan if they are many. */
static __device__ void place_offsets(const struct epx_route_tokens &a, int64_t *shared,
                                     const struct shared_parts &parts, struct offsets &o)
{
    o.base = parts.base ? shared : a.plan.base;
    o.from = parts.from ? shared + parts.base : a.plan.from;
}

/* The counters of all warps, behind each other; if they do not fit those of one, in the plan. */
static __device__ __forceinline__ int32_t *
counters_of(const struct epx_route_tokens &a, const struct shared_parts &parts, int32_t *words)
{
    return parts.warps ? words
                       : a.plan.warp_counts + (int64_t)blockIdx.x * (1 + SUMS) * num_counts(a);
}

static inline size_t bytes_of_parts(const struct shared_parts &parts)
{
    return (size_t)(parts.base + parts.from) * sizeof(int64_t) + (size_t)parts.owners +
           (size_t)parts.words * sizeof(int32_t);
}

/* Shared memory of a block in any routing. */
enum {
    MOST_ROUTING_BYTES = MOST_SHARED_COUNTS * (int)sizeof(int32_t) + MOST_SHARED_OWNERS +
                         2 * MOST_SHARED_OFFSETS * (int)sizeof(int64_t)
};

#endif
