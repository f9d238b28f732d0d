/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pairs.cuh - the first half of a routing. A warp has a run of tokens; it counts their pairs by
 * expert and their rows by rank. Once it knows what the warps before it have counted, it numbers
 * pairs and rows and sends their records.
 * A lane has a pair. With up to 32 choices a step takes whole tokens, so that lanes ask each other
 * who goes to the same rank; with more, a token takes two steps and lanes look into memory.
 */
#ifndef EPX_KERNELS_ROUTING_PAIRS_CUH
#define EPX_KERNELS_ROUTING_PAIRS_CUH

#include "kernels/args/route_args.h"
#include "kernels/warp/lanes.cuh"

/* The tokens of one warp, and its counters: what epx_num_counters has. */
struct chunk {
    int32_t first_token, end_token;
    int32_t *counts;
};

/* What all warps look up; in shared memory. */
struct rank_table {
    const uint8_t *owner; /* of each expert; NULL = too many, the plan has it */
    char *records[EPX_MOST_DEVICE_RANKS];
    int32_t first_expert[EPX_MOST_DEVICE_RANKS + 1];
};

/* How the lanes of a warp share the tokens of a step. */
struct lanes {
    int32_t tokens;        /* of a step; 0 = it takes half a token */
    int32_t token, choice; /* of this lane; an idle lane has choice top_k */
    uint32_t same_token;   /* lanes of the token */
};

struct position {
    int32_t token, choice;
    int64_t pair;
    bool valid;
};

static __device__ __forceinline__ int32_t num_counts(const struct epx_route_tokens &a)
{
    return epx_num_counts(&a.plan, a.comm.num_ranks);
}

static __device__ __forceinline__ int32_t num_counters(const struct epx_route_tokens &a)
{
    return epx_num_counters(&a.plan, a.comm.num_ranks);
}

/* The number of this block among those that route; blocks that store rows come before them. */
static __device__ __forceinline__ int32_t routing_block(const struct epx_route_tokens &a)
{
    return (int32_t)blockIdx.x - a.banks.senders;
}

/* The block that shows in the view what all blocks know: the last, which has the least of other
 * work. */
static __device__ __forceinline__ bool shows_view()
{
    return blockIdx.x == gridDim.x - 1;
}

static __device__ __forceinline__ int32_t num_routing_blocks(const struct epx_route_tokens &a)
{
    return (int32_t)gridDim.x - a.banks.senders;
}

/* Warps are numbered in turn over the blocks, so that what takes a few of them is done on all
 * multiprocessors: stores that lie apart take one its time. */
static __device__ __forceinline__ int32_t routing_warp(const struct epx_route_tokens &a)
{
    return (int32_t)threadIdx.x / EPX_WARP * num_routing_blocks(a) + routing_block(a);
}

static __device__ __forceinline__ int64_t routing_thread(const struct epx_route_tokens &a)
{
    return (int64_t)routing_warp(a) * EPX_WARP + lane_id();
}

static __device__ __forceinline__ int64_t num_routing_threads(const struct epx_route_tokens &a)
{
    return (int64_t)num_routing_blocks(a) * blockDim.x;
}

static __device__ __forceinline__ int32_t num_routing_warps(const struct epx_route_tokens &a)
{
    return (int32_t)(num_routing_threads(a) / EPX_WARP);
}

/* The first of num things that the i-th of n has: num * i / n, for num * i that is too large. */
static __device__ __forceinline__ uint32_t share_of(uint32_t num, uint32_t i, uint32_t n)
{
    return num / n * i + num % n * i / n;
}

/* The block has a run of tokens, of which each of its first warps has a run. */
static __device__ struct chunk chunk_of(const struct epx_route_tokens &a, int32_t warps,
                                        int32_t *counts)
{
    uint32_t warp = threadIdx.x / EPX_WARP, blocks = (uint32_t)a.comm.blocks;
    uint32_t first = share_of((uint32_t)a.num_tokens, blockIdx.x, blocks);
    uint32_t num = share_of((uint32_t)a.num_tokens, blockIdx.x + 1, blocks) - first;
    struct chunk chunk = {0, 0, counts + (int64_t)warp * num_counters(a)};

    if (warp >= (uint32_t)warps)
        return chunk;
    chunk.first_token = (int32_t)(first + share_of(num, warp, (uint32_t)warps));
    chunk.end_token = (int32_t)(first + share_of(num, warp + 1, (uint32_t)warps));
    return chunk;
}

static __device__ struct lanes lanes_of(int32_t top_k)
{
    struct lanes lanes = {EPX_WARP / top_k, 0, lane_id(), ~0u};

    if (lanes.tokens == 0)
        return lanes;
    lanes.token = lane_id() / top_k;
    lanes.choice = lanes.token < lanes.tokens ? lane_id() % top_k : top_k;
    lanes.same_token = (~0u >> (EPX_WARP - top_k)) << (lane_id() - lanes.choice);
    return lanes;
}

static __device__ __forceinline__ int32_t num_steps(const struct lanes &lanes,
                                                    const struct chunk &chunk)
{
    int32_t tokens = chunk.end_token - chunk.first_token;

    return lanes.tokens ? (tokens + lanes.tokens - 1) / lanes.tokens : 2 * tokens;
}

/* The pair of this lane in a step; past the last step it is not valid. */
static __device__ __forceinline__ struct position
position_of(const struct lanes &lanes, int32_t top_k, const struct chunk &chunk, int32_t step)
{
    struct position at;

    if (lanes.tokens) {
        at.token = chunk.first_token + step * lanes.tokens + lanes.token;
        at.choice = lanes.choice;
    } else {
        at.token = chunk.first_token + step / 2;
        at.choice = lanes.choice + step % 2 * EPX_WARP;
    }
    at.pair = (int64_t)at.token * top_k + at.choice;
    at.valid = at.token < chunk.end_token && at.choice < top_k;
    return at;
}

static __device__ __forceinline__ int32_t lead_of(int32_t lead_place)
{
    return lead_place >> 8;
}

static __device__ __forceinline__ int32_t place_of(int32_t lead_place)
{
    return lead_place & 255;
}

static __device__ struct epx_device_pair load_pair(const struct epx_device_plan &plan, int64_t pair)
{
    int4 words = *(const int4 *)(const void *)&plan.pairs[pair];
    struct epx_device_pair loaded = {words.x, words.y, words.z, words.w};

    return loaded;
}

static __device__ void store_pair(const struct epx_device_plan &plan, int64_t pair,
                                  const struct epx_device_pair &p)
{
    *(int4 *)(void *)&plan.pairs[pair] = make_int4(p.expert, p.index, p.row, p.lead_place);
}

static __device__ EPX_COLD void note_bad(const struct epx_device_plan &plan, int64_t pair)
{
    atomicAdd((unsigned long long *)&plan.bad[0], 1ULL);
    atomicMax((unsigned long long *)&plan.bad[1], ~(unsigned long long)pair);
}

static __device__ int32_t check_id(const struct epx_device_plan &plan, int64_t id, int64_t pair)
{
    if (id >= 0 && id < plan.shape.num_experts)
        return (int32_t)id;
    if (id != -1)
        note_bad(plan, pair);
    return -1;
}

static __device__ __forceinline__ int32_t rank_of(const struct epx_device_plan &plan,
                                                  const struct rank_table &table, int32_t expert)
{
    if (expert < 0)
        return -1;
    return table.owner ? table.owner[expert] : plan.owner[expert];
}

/*
 * The lanes with the same key, this one too if its key is not negative; keys are below `keys`. The
 * warp votes on each bit: __match_any_sync takes longer the more keys there are.
 */
static __device__ uint32_t same_key(int32_t key, int32_t keys)
{
    uint32_t same = __ballot_sync(~0u, key >= 0);

#pragma unroll 1
    for (int32_t bit = 0; keys - 1 >> bit; bit++) {
        uint32_t ones = __ballot_sync(~0u, key >> bit & 1);

        same &= key >> bit & 1 ? ones : ~ones;
    }
    return same;
}

/* The first choice of the pair's token that goes to the rank, looked up in memory. */
static __device__ EPX_COLD int32_t find_lead(const struct epx_device_plan &plan,
                                             const struct rank_table &table,
                                             const struct position &at, int32_t rank)
{
    int64_t first = at.pair - at.choice;
    int32_t choice = 0;

    while (choice < at.choice && rank_of(plan, table, plan.pairs[first + choice].expert) != rank)
        choice++;
    return choice;
}

static __device__ void count_pair(const struct epx_route_tokens &a, const struct rank_table &table,
                                  const struct chunk &chunk, const struct lanes &lanes,
                                  const struct position &at, int64_t id)
{
    const struct epx_device_plan &plan = a.plan;
    int32_t expert = at.valid ? check_id(plan, id, at.pair) : -1;
    int32_t rank = rank_of(plan, table, expert);
    uint32_t same = same_key(rank, a.comm.num_ranks), leaders;
    bool leads;

    if (at.valid)
        plan.pairs[at.pair].expert = expert;
    if (lanes.tokens) {
        leads = (same & lanes.same_token & lanes_below()) == 0;
    } else {
        int32_t lead;

        __syncwarp();
        lead = rank >= 0 ? find_lead(plan, table, at, rank) : 0;
        leads = lead == at.choice;
        if (at.valid)
            plan.pairs[at.pair].lead_place = lead << 8;
    }
    leaders = same & __ballot_sync(~0u, leads);
    if (rank < 0)
        return;
    atomicAdd(&chunk.counts[expert], 1);
    if (same & lanes_below())
        return;
    atomicAdd(&chunk.counts[plan.shape.num_experts + rank], __popc(leaders));
    if (plan.block_words)
        atomicAdd(&chunk.counts[num_counts(a) + rank], __popc(same));
}

static __device__ __forceinline__ int64_t load_id(const struct epx_route_tokens &a,
                                                  const struct position &at)
{
    return at.valid ? epx_expert_id(a.ids, a.plan.shape.index_bits, at.pair) : -1;
}

/* The id of this lane's pair in the first step; it is asked for before the warp counts. */
static __device__ __forceinline__ int64_t first_id(const struct epx_route_tokens &a,
                                                   const struct chunk &chunk,
                                                   const struct lanes &lanes)
{
    return load_id(a, position_of(lanes, a.plan.shape.top_k, chunk, 0));
}

/*
 * Here, in number_chunk and in assign_slots the load for the next step is under way during a step.
 * The loops stay rolled: most code runs only a few times in a kernel, so that fetching it is what
 * takes long.
 */
static __device__ void count_chunk(const struct epx_route_tokens &a, const struct rank_table &table,
                                   const struct chunk &chunk, const struct lanes &lanes, int64_t id)
{
    int32_t top_k = a.plan.shape.top_k, steps = num_steps(lanes, chunk);
    struct position at = position_of(lanes, top_k, chunk, 0);

#pragma unroll 1
    for (int32_t step = 1; step <= steps; step++) {
        struct position next = position_of(lanes, top_k, chunk, step);
        int64_t next_id = load_id(a, next);

        count_pair(a, table, chunk, lanes, at, id);
        at = next;
        id = next_id;
    }
    __syncwarp();
}

/* How many numbers of each key are taken. */
struct counters {
    int32_t *counts;       /* by this warp and the earlier ones of its block */
    const int32_t *before; /* by the blocks before */
};

/* Lanes with the same key take consecutive numbers from its counter, in lane order. */
static __device__ int32_t take_number(const struct counters &counters, int32_t key, int32_t keys)
{
    uint32_t same = same_key(key, keys), below = same & lanes_below();
    int32_t number = key >= 0 ? counters.before[key] + counters.counts[key] + __popc(below) : -1;

    __syncwarp();
    if (key >= 0 && below == 0)
        counters.counts[key] += __popc(same);
    __syncwarp();
    return number;
}

/* A pair among those of its token. */
struct group {
    int32_t lead;        /* first choice of the pair's row */
    int32_t before, num; /* pairs of the row: before this one, all */
    int32_t place;       /* rows of the token to lower ranks */
    int32_t rows;        /* of the token */
};

static __device__ struct group group_in_step(const struct lanes &lanes, int32_t top_k, int32_t rank,
                                             int32_t num_ranks)
{
    int32_t first = lane_id() - lanes.choice;
    uint32_t same = same_key(rank, num_ranks) & lanes.same_token;
    uint32_t leads = __ballot_sync(~0u, rank >= 0 && (same & lanes_below()) == 0);
    struct group group = {lanes.choice, __popc(same & lanes_below()), __popc(same), 0, 0};

    if (rank >= 0)
        group.lead = __ffs((int)same) - 1 - first;
#pragma unroll 2
    for (int32_t choice = 0; choice < top_k; choice++) {
        int32_t other = __shfl_sync(~0u, rank, first + choice);
        int32_t counts = (int32_t)(leads >> (first + choice) & 1);

        group.rows += counts;
        group.place += other < rank ? counts : 0;
    }
    return group;
}

static __device__ EPX_COLD struct group group_in_memory(const struct epx_device_plan &plan,
                                                        const struct rank_table &table,
                                                        const struct position &at, int32_t rank)
{
    int64_t first = at.pair - at.choice;
    struct group group = {0, 0, 0, 0, 0};

    if (!at.valid)
        return group;
    group.lead = lead_of(plan.pairs[at.pair].lead_place);
    for (int32_t choice = 0; choice < plan.shape.top_k; choice++) {
        int32_t expert = plan.pairs[first + choice].expert;
        int32_t lead = lead_of(plan.pairs[first + choice].lead_place);

        if (expert < 0)
            continue;
        group.num += lead == group.lead;
        group.before += lead == group.lead && choice < at.choice;
        group.rows += lead == choice;
        group.place += lead == choice && rank_of(plan, table, expert) < rank;
    }
    return group;
}

/* The number of the pair's row, from the lane or the memory of the row's first pair, its lead. */
static __device__ int32_t row_of_lead(const struct epx_device_plan &plan, const struct lanes &lanes,
                                      const struct position &at, int32_t lead, int32_t row)
{
    if (lanes.tokens)
        return __shfl_sync(~0u, row, lane_id() - lanes.choice + lead);
    if (row >= 0)
        plan.pairs[at.pair].row = row;
    __syncwarp();
    return at.valid ? plan.pairs[at.pair - at.choice + lead].row : -1;
}

/* Writes a record but for its pairs. */
static __device__ __forceinline__ void store_head(struct epx_wire_record *record, int32_t token,
                                                  uint32_t pairs_at, int32_t place,
                                                  int32_t num_pairs, int32_t num_slots)
{
    *(int4 *)(void *)record =
        make_int4(token, (int32_t)pairs_at, place | num_pairs << 8 | num_slots << 16, 0);
}

/* Writes this pair's part of its row's record; the row's first pair, its lead, writes the head. */
static __device__ void send_pair(const struct epx_route_tokens &a, const struct rank_table &table,
                                 const struct position &at, const struct epx_device_pair &pair,
                                 int32_t rank, const struct group &group)
{
    const struct epx_device_plan &plan = a.plan;
    struct epx_wire_record *record =
        epx_wire_record_at(&plan, table.records[rank], a.comm.rank, pair.row);
    uint32_t local = (uint32_t)(pair.expert - table.first_expert[rank]);

    *(int2 *)(void *)&epx_wire_pairs_at(record, EPX_PAIRS_BEHIND)[group.before] =
        make_int2(pair.index, (int32_t)(local << 8 | (uint32_t)at.choice));
    if (group.lead != at.choice)
        return;
    store_head(record, at.token, EPX_PAIRS_BEHIND, group.place, group.num,
               plan.shape.rank_major ? 1 : group.num);
    plan.token_rank[(int64_t)at.token * plan.most_rows + group.place] = rank;
}

static __device__ void number_pair(const struct epx_route_tokens &a, const struct rank_table &table,
                                   const struct counters &counters, const struct lanes &lanes,
                                   const struct position &at, int32_t expert)
{
    const struct epx_device_plan &plan = a.plan;
    int32_t rank = rank_of(plan, table, expert);
    struct group group = lanes.tokens
                             ? group_in_step(lanes, plan.shape.top_k, rank, a.comm.num_ranks)
                             : group_in_memory(plan, table, at, rank);
    bool leads = rank >= 0 && group.lead == at.choice;
    struct epx_device_pair pair = {expert, 0, 0, group.lead << 8 | group.place};

    pair.index = take_number(counters, expert, plan.shape.num_experts);
    pair.row = take_number(
        {counters.counts + plan.shape.num_experts, counters.before + plan.shape.num_experts},
        leads ? rank : -1, a.comm.num_ranks);
    pair.row = row_of_lead(plan, lanes, at, group.lead, pair.row);
    if (!at.valid)
        return;
    store_pair(plan, at.pair, pair);
    if (rank >= 0)
        send_pair(a, table, at, pair, rank, group);
    if (at.choice == 0)
        plan.token_num[at.token] = group.rows;
}

static __device__ __forceinline__ int32_t load_expert(const struct epx_device_plan &plan,
                                                      const struct position &at)
{
    return at.valid ? plan.pairs[at.pair].expert : -1;
}

static __device__ void number_chunk(const struct epx_route_tokens &a,
                                    const struct rank_table &table, const struct chunk &chunk,
                                    const int32_t *before)
{
    int32_t top_k = a.plan.shape.top_k;
    const struct counters counters = {chunk.counts, before};
    struct lanes lanes = lanes_of(top_k);
    int32_t steps = num_steps(lanes, chunk);
    struct position at = position_of(lanes, top_k, chunk, 0);
    int32_t expert = load_expert(a.plan, at);

#pragma unroll 1
    for (int32_t step = 1; step <= steps; step++) {
        struct position next = position_of(lanes, top_k, chunk, step);
        int32_t next_expert = load_expert(a.plan, next);

        number_pair(a, table, counters, lanes, at, expert);
        at = next;
        expert = next_expert;
    }
}

#endif
