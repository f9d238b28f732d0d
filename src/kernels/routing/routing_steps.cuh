/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * routing_steps.cuh - the steps of a routing that are the same whether ranks store into each
 * other's memory (route_tokens.cuh) or exchange messages (count_tokens.cu, send_records.cu,
 * find_slots.cu): counting, where things lie in shared memory, and the end.
 */
#ifndef EPX_KERNELS_ROUTING_ROUTING_STEPS_CUH
#define EPX_KERNELS_ROUTING_ROUTING_STEPS_CUH

#include "kernels/protocol/protocol.cuh"
#include "kernels/routing/offsets.cuh"
#include "kernels/routing/record_lists.cuh"

/* A block of ROUTING_THREADS fills a multiprocessor. Where half the memory is enough, a routing in
 * one launch may have halves of such blocks, of which two fill one: twice as many run at once
 * wherever the whole blocks would, and on a multiprocessor each if so many are free. */
enum {
    ROUTING_THREADS = 1024,
    HALF_THREADS = ROUTING_THREADS / EPX_ROUTE_HALVES,
    HALF_BYTES = 92 * 1024,         /* of dynamic shared memory */
    MOST_SHARED_COUNTS = 32 * 1024, /* counters, and the matrix */
    MOST_SHARED_MATRIX = 16 * 1024, /* beside counters */
    MOST_SHARED_OFFSETS = 4 * 1024, /* of `base`, of `from` */
    MOST_SHARED_OWNERS = 8 * 1024,
    SUMS = 2, /* behind the counters of the warps: those of the block and of the blocks before; with
                 messages of the blocks before and of all */
    WARPS_AT_ONCE = 8
};

/* Which parts of a routing are in dynamic shared memory; the others are in the plan. */
struct shared_parts {
    int32_t base, from; /* offsets */
    int32_t owners;     /* bytes, a multiple of 8 */
    int32_t warps;      /* warps that count; 0 = one, whose counters are in the plan */
    int32_t words;      /* of their counters */
    int32_t matrix;     /* where the count matrix lies in them, -1 = in the plan */
    int32_t lists;      /* bytes of the records that a block sends, 0 = they are stored at once */
};

/* Finds how many warps count of so many, and where the matrix lies: with messages in place of the
 * counters, which are not used any more when it has come, else behind them. */
static void find_words(const struct epx_route_tokens *args, int32_t most,
                       struct shared_parts *parts)
{
    int64_t ranks = args->comm.num_ranks, counters = epx_num_counters(&args->plan, (int32_t)ranks);
    int64_t matrix = ranks * epx_num_counts(&args->plan, (int32_t)ranks);
    int behind = args->plan.block_words != NULL;
    int64_t fit, words;

    if (matrix > (behind ? MOST_SHARED_MATRIX : MOST_SHARED_COUNTS))
        matrix = 0;
    fit = (MOST_SHARED_COUNTS - (behind ? matrix : 0)) / counters - SUMS;
    parts->warps = (int32_t)(fit < 0 ? 0 : fit < most ? fit : most);
    words = parts->warps ? (parts->warps + SUMS) * counters : 0;
    parts->matrix = matrix == 0 ? -1 : behind ? (int32_t)words : 0;
    parts->words = (int32_t)(behind ? words + matrix : words > matrix ? words : matrix);
}

/* Shared memory of a block in any routing. */
enum {
    MOST_ROUTING_BYTES = MOST_SHARED_COUNTS * (int)sizeof(int32_t) + MOST_SHARED_OWNERS +
                         2 * MOST_SHARED_OFFSETS * (int)sizeof(int64_t)
};

static inline size_t bytes_of_parts(const struct shared_parts &parts)
{
    return (size_t)(parts.base + parts.from) * sizeof(int64_t) + (size_t)parts.owners +
           (size_t)parts.words * sizeof(int32_t) + (size_t)parts.lists;
}

/* Finds the bytes of the records that a block sends: with messages it sends none, and elsewhere
 * they may be too many. They begin at a multiple of 16. */
static void find_lists(const struct epx_route_tokens *args, struct shared_parts *parts)
{
    int64_t tokens = (args->plan.shape.max_tokens + args->comm.blocks - 1LL) / args->comm.blocks;
    int64_t bytes = tokens * (16 * args->plan.most_rows + 8 * args->plan.shape.top_k) +
                    24 * args->comm.num_ranks;

    parts->lists = 0;
    parts->words += (int32_t)(16 - bytes_of_parts(*parts) % 16) % 16 / 4;
    bytes = epx_round_up(bytes, 16);
    if (args->plan.block_words && bytes <= MOST_ROUTING_BYTES - (int64_t)bytes_of_parts(*parts))
        parts->lists = (int32_t)bytes;
}

/* The parts of a block with so many warps. */
static struct shared_parts parts_of(const struct epx_route_tokens *args, int32_t warps)
{
    int64_t ranks = args->comm.num_ranks;
    int64_t from = args->plan.shape.rank_major ? ranks : args->plan.shape.num_local * ranks;
    struct shared_parts parts;

    find_words(args, warps, &parts);
    parts.base =
        args->plan.shape.num_experts <= MOST_SHARED_OFFSETS ? args->plan.shape.num_experts : 0;
    parts.from = from <= MOST_SHARED_OFFSETS ? (int32_t)from : 0;
    parts.owners = args->plan.shape.num_experts <= MOST_SHARED_OWNERS
                       ? (int32_t)epx_round_up(args->plan.shape.num_experts, 8)
                       : 0;
    find_lists(args, &parts);
    return parts;
}

/* All counters but one start at 0. The last counts this rank's receive capacity, once: the totals
 * tell it to all ranks. */
static __device__ void zero_counts(const struct epx_route_tokens &a, int32_t counting_warps,
                                   int32_t *counts)
{
    int64_t num = (int64_t)(counting_warps + SUMS) * num_counters(a), last = num_counts(a) - 1;

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

static_assert((int64_t)EPX_MOST_DEVICE_EXPERTS * EPX_MOST_DEVICE_RANKS < 1LL << 32,
              "a number of an expert times a number of ranks fits in 32 bits");

/* Fills the table, each part by other threads, from the first on, from the middle and from the last
 * quarter on. */
static __device__ void look_up(const struct epx_route_tokens &a, uint8_t *owner,
                               struct rank_table &table)
{
    int32_t ranks = a.comm.num_ranks, experts = a.plan.shape.num_experts;
    int32_t threads = (int32_t)blockDim.x, thread = (int32_t)threadIdx.x;
    int32_t middle = thread - threads / 2, quarter = thread - threads / 4 * 3;

    for (int32_t e = thread; owner && e < experts; e += threads)
        owner[e] = (uint8_t)epx_owner(e, experts, ranks);
    for (int32_t r = middle < 0 ? middle + threads : middle; r < ranks; r += threads)
        table.records[r] = a.plan.records[r];
    for (int32_t r = quarter < 0 ? quarter + threads : quarter; r <= ranks; r += threads)
        table.first_expert[r] = epx_first_expert(r, experts, ranks);
    if (thread == 0)
        table.owner = owner;
}

/* The sum of one counter of each warp. */
static __device__ __forceinline__ int32_t sum_of_warps(const int32_t *counter, int32_t num,
                                                       int32_t warps)
{
    int32_t sum = 0;

#pragma unroll 8
    for (int32_t w = 0; w < warps; w++)
        sum += counter[(int64_t)w * num];
    return sum;
}

static __device__ void sum_over_warps(const struct epx_route_tokens &a, int32_t counting_warps,
                                      const int32_t *counts)
{
    int32_t num = num_counters(a);

    for (int32_t i = (int32_t)threadIdx.x; i < num; i += (int32_t)blockDim.x)
        a.plan.block_counts[(int64_t)blockIdx.x * num + i] =
            sum_of_warps(counts + i, num, counting_warps);
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
    int32_t num = num_counters(a);

    for (int32_t i = (int32_t)threadIdx.x; i < num; i += (int32_t)blockDim.x)
        scan_counter(counts + i, num, counting_warps);
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

    outcome.rank = (int32_t)(a.plan.bad[0] < INT32_MAX ? a.plan.bad[0] : INT32_MAX);
    outcome.a = pair / a.plan.shape.top_k;
    outcome.b = pair % a.plan.shape.top_k;
    outcome.c = epx_expert_id(a.ids, a.plan.shape.index_bits, pair);
    return outcome;
}

/* One thread: the counts of a routing that failed before there was a view, for work that is queued
 * behind it. */
static __device__ EPX_COLD void zero_user_counts(const struct epx_route_tokens &a)
{
    for (int32_t i = 0; i < 2 * a.plan.shape.num_local + 1; i++)
        a.counts[i] = 0;
}

/* end_routing where something was remarked, or the routing failed, or a dispatch follows. */
static __device__ EPX_COLD void end_remarked(const struct epx_route_tokens &a,
                                             const struct exchange &x, bool exchanged)
{
    const uint64_t bad = a.plan.bad[0], dropped = (uint64_t)*a.plan.dropped;
    const int64_t rows = *a.plan.view.arrived_rows;
    struct epx_outcome outcome = x.outcome;

    *a.plan.outcome = outcome;
    if (a.counts && outcome.code != EPX_SUCCESS && outcome.code != EPX_ERR_TRUNCATE)
        zero_user_counts(a);
    if (outcome.code == EPX_SUCCESS && bad)
        outcome = outcome_of_ids(a);
    if (x.outcome.code == EPX_SUCCESS && dropped)
        add_to(&a.comm.state->stats.dropped_rows, dropped);
    if (bad)
        a.plan.bad[0] = a.plan.bad[1] = 0;
    if (a.comm.half == HALF_ROUTING)
        hand_over_routing(a.comm, x, exchanged, outcome);
    else
        end_exchange(a.comm, x, exchanged, 0, rows, outcome);
}

/* The routing's own error stays for the operations on it; bad ids leave it valid. Unless something
 * was remarked, no id was bad and no row dropped. */
static __device__ __forceinline__ void end_routing(const struct epx_route_tokens &a,
                                                   const struct exchange &x, bool exchanged,
                                                   bool remarked = true)
{
    if (remarked || x.outcome.code != EPX_SUCCESS || a.comm.half == HALF_ROUTING) {
        end_remarked(a, x, exchanged);
        return;
    }
    *a.plan.outcome = epx_outcome();
    end_exchange(a.comm, x, exchanged, 0, *a.plan.view.arrived_rows, epx_outcome());
}

/* All blocks: finds the offsets. False if there is no room; the view is that of no tokens then. */
static __device__ bool find_room(const struct epx_route_tokens &a, struct exchange &x,
                                 const struct rank_table &table, struct offsets &o)
{
    if (threadIdx.x == blockDim.x - 1)
        count_records(a, o);
    find_offsets(a, table, o);
    if (o.short_rank < 0 || a.plan.shape.drops)
        return true;
    empty_view(a, o);
    if (threadIdx.x == 0)
        x.outcome = outcome_short(a, table, o);
    return false;
}

/* Where a kernel has its parts in dynamic shared memory. */
struct room {
    uint8_t *owner;  /* NULL = in the plan */
    int32_t *words;  /* counters */
    int32_t *matrix; /* NULL = in the plan */
    char *lists;     /* NULL = none */
};

/* The counters behind those of the warps. */
static __device__ __forceinline__ struct block_counters
counters_behind(const struct epx_route_tokens &a, int32_t counting_warps, int32_t *counts)
{
    int32_t *own = counts + (int64_t)counting_warps * num_counters(a);

    return {own, own + num_counters(a)};
}

static __device__ struct room divide_room(int64_t *shared, const struct shared_parts &parts)
{
    uint8_t *owner = (uint8_t *)(void *)(shared + parts.base + parts.from);

    int32_t *words = (int32_t *)(void *)(owner + parts.owners);

    return {parts.owners ? owner : NULL, words, parts.matrix < 0 ? NULL : words + parts.matrix,
            parts.lists ? (char *)(words + parts.words) : NULL};
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
                       : a.plan.warp_counts + (int64_t)blockIdx.x * (1 + SUMS) * num_counters(a);
}

#endif
