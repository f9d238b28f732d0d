/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_tokens.cu - a whole routing in one launch. A warp has a run of tokens; it counts their
 * pairs by expert and their rows by rank. The sums over all warps, and this rank's records, with
 * each pair's index among this rank's pairs of its expert, go to all ranks in one hop; then
 * every rank has the whole count matrix and turns indices into slots, its own and those of the
 * records that it received.
 * Work: max_tokens * top_k + records here + ranks * experts in every block. Reads ids; writes the
 * plan. Order: (token, choice), whatever the number of blocks.
 * Launch: comm.blocks blocks, which meet at one barrier and wait for other ranks twice.
 */
#include "rows.cuh"

enum { ROUTING_THREADS = 1024, MOST_SHARED_COUNTS = 40 * 1024 };

/* The tokens of one counting warp, and its counters: pairs of each expert, rows of each rank. */
struct chunk {
    int32_t first_token, end_token;
    int32_t *counts;
};

static __device__ __forceinline__ int32_t num_counts(const struct epx_route_tokens &a)
{
    return a.plan.num_experts + a.comm.num_ranks;
}

static __device__ struct chunk chunk_of(const struct epx_route_tokens &a, int32_t counting_warps,
                                        int32_t *counts)
{
    int32_t warp = (int32_t)threadIdx.x / EPX_WARP;
    int64_t chunks = (int64_t)a.comm.blocks * counting_warps;
    int64_t index = (int64_t)blockIdx.x * counting_warps + warp;
    struct chunk chunk = {0, 0, counts + (int64_t)warp * num_counts(a)};

    if (warp >= counting_warps)
        return chunk;
    chunk.first_token = (int32_t)(index * a.num_tokens / chunks);
    chunk.end_token = (int32_t)((index + 1) * a.num_tokens / chunks);
    return chunk;
}

static __device__ void note_bad(const struct epx_device_plan &plan, int64_t pair)
{
    atomicAdd((unsigned long long *)&plan.bad[0], 1ULL);
    atomicMax((unsigned long long *)&plan.bad[1], ~(unsigned long long)pair);
}

/* Whether no earlier choice of the token goes to the same rank. */
static __device__ bool is_first_to_rank(const struct epx_device_plan &plan, int64_t pair,
                                        int32_t rank)
{
    for (int64_t p = pair - pair % plan.top_k; p < pair; p++)
        if (plan.experts[p] >= 0 && plan.owner[plan.experts[p]] == rank)
            return false;
    return true;
}

static __device__ int32_t read_expert(const struct epx_route_tokens &a, int64_t pair)
{
    int64_t id = epx_expert_id(a.ids, a.plan.index_bits, pair);

    if (id >= 0 && id < a.plan.num_experts)
        return (int32_t)id;
    if (id != -1)
        note_bad(a.plan, pair);
    return -1;
}

static __device__ void count_chunk(const struct epx_route_tokens &a, const struct chunk &chunk)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t end = (int64_t)chunk.end_token * plan.top_k;

    for (int64_t at = (int64_t)chunk.first_token * plan.top_k; at < end; at += EPX_WARP) {
        int64_t pair = at + lane_id();
        int32_t expert = pair < end ? read_expert(a, pair) : -1;

        if (pair < end)
            plan.experts[pair] = expert;
        __syncwarp();
        if (expert < 0)
            continue;
        atomicAdd(&chunk.counts[expert], 1);
        if (is_first_to_rank(plan, pair, plan.owner[expert]))
            atomicAdd(&chunk.counts[plan.num_experts + plan.owner[expert]], 1);
    }
}

static __device__ void zero_counts(const struct epx_route_tokens &a, int32_t counting_warps,
                                   int32_t *counts)
{
    for (int64_t i = threadIdx.x; i < (int64_t)counting_warps * num_counts(a); i += blockDim.x)
        counts[i] = 0;
}

/* What later steps add to. */
static __device__ void zero_sums(const struct epx_route_tokens &a)
{
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x)
        a.plan.send_rows[r] = a.plan.recv_rows[r] = 0;
    for (int32_t e = (int32_t)threadIdx.x; e < a.plan.num_local; e += (int32_t)blockDim.x)
        a.plan.expert_counts[e] = 0;
    if (threadIdx.x == 0)
        *a.plan.dropped = 0;
}

/* Each warp's counters become what the earlier warps of the block have counted. */
static __device__ void sum_over_warps(const struct epx_route_tokens &a, int32_t counting_warps,
                                      int32_t *counts)
{
    int32_t num = num_counts(a);

    for (int32_t i = (int32_t)threadIdx.x; i < num; i += (int32_t)blockDim.x) {
        int32_t sum = 0;

        for (int32_t w = 0; w < counting_warps; w++) {
            int32_t here = counts[(int64_t)w * num + i];

            counts[(int64_t)w * num + i] = sum;
            sum += here;
        }
        a.plan.block_counts[(int64_t)blockIdx.x * num + i] = sum;
    }
}

/* Adds what the earlier blocks have counted; the totals go to all ranks, each from one block. */
static __device__ void sum_over_blocks(const struct epx_route_tokens &a, int32_t counting_warps,
                                       int32_t *counts)
{
    int32_t num = num_counts(a), me = a.comm.rank;

    for (int32_t i = (int32_t)threadIdx.x; i < num; i += (int32_t)blockDim.x) {
        int32_t before = 0, total = 0;

        for (int32_t b = 0; b < a.comm.blocks; b++) {
            int32_t there = a.plan.block_counts[(int64_t)b * num + i];

            before += b < (int32_t)blockIdx.x ? there : 0;
            total += there;
        }
        for (int32_t w = 0; w < counting_warps; w++)
            counts[(int64_t)w * num + i] += before;
        if (i / EPX_WARP % a.comm.blocks == (int32_t)blockIdx.x)
            for (int32_t r = 0; r < a.comm.num_ranks; r++)
                ((int32_t *)(void *)a.plan.counts[r])[(int64_t)me * num + i] = total;
    }
}

/* Lanes with the same key take consecutive numbers from its counter, in lane order. */
static __device__ int32_t take_number(int32_t *counters, int32_t key)
{
    uint32_t same = __match_any_sync(~0u, key >= 0 ? key : -1 - lane_id());
    uint32_t below = same & ((1u << lane_id()) - 1);
    int32_t number = key >= 0 ? counters[key] + __popc(below) : -1;

    __syncwarp();
    if (key >= 0 && below == 0)
        counters[key] += __popc(same);
    __syncwarp();
    return number;
}

static __device__ void number_chunk(const struct epx_route_tokens &a, const struct chunk &chunk)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t end = (int64_t)chunk.end_token * plan.top_k;

    for (int64_t at = (int64_t)chunk.first_token * plan.top_k; at < end; at += EPX_WARP) {
        int64_t pair = at + lane_id();
        int32_t expert = pair < end ? plan.experts[pair] : -1;
        int32_t rank = expert >= 0 ? plan.owner[expert] : -1;
        bool first = rank >= 0 && is_first_to_rank(plan, pair, rank);
        int32_t index = take_number(chunk.counts, expert);
        int32_t row = take_number(chunk.counts + plan.num_experts, first ? rank : -1);

        if (pair < end) {
            plan.index[pair] = index;
            plan.row[pair] = row;
        }
    }
    __syncwarp();
}

/* Ranks below the given one that the token has rows for. */
static __device__ int32_t place_of(const struct epx_device_plan &plan, int64_t first, int32_t rank)
{
    int32_t place = 0;

    for (int64_t p = first; p < first + plan.top_k; p++)
        place += plan.row[p] >= 0 && plan.owner[plan.experts[p]] < rank;
    return place;
}

/* The record of the row that begins with this pair; two pairs a store. */
static __device__ void send_record(const struct epx_route_tokens &a, int64_t pair)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t first = pair - pair % plan.top_k;
    int32_t rank = plan.owner[plan.experts[pair]], num = 0;
    int32_t first_expert = epx_first_expert(rank, plan.num_experts, a.comm.num_ranks);
    struct epx_wire_record *record =
        epx_wire_record_at(&plan, plan.records[rank], a.comm.rank, plan.row[pair]);
    int4 *to = (int4 *)(void *)epx_wire_pairs(record), two = make_int4(0, 0, 0, 0);

    for (int64_t p = pair; p < first + plan.top_k; p++) {
        int32_t expert = plan.experts[p];
        int32_t word;

        if (expert < 0 || plan.owner[expert] != rank)
            continue;
        word = (int32_t)((uint32_t)(expert - first_expert) << 8 | (uint32_t)(p - first));
        if (num++ % 2 == 0) {
            two = make_int4(plan.index[p], word, 0, 0);
            continue;
        }
        two.z = plan.index[p];
        two.w = word;
        to[num / 2 - 1] = two;
    }
    if (num % 2)
        to[num / 2] = two;
    plan.place[pair] = place_of(plan, first, rank);
    plan.token_rank[first / plan.top_k * plan.most_rows + plan.place[pair]] = rank;
    *(int4 *)(void *)record =
        make_int4((int32_t)(first / plan.top_k), plan.place[pair], num, 0);
}

static __device__ void send_records(const struct epx_route_tokens &a, const struct chunk &chunk)
{
    int64_t end = (int64_t)chunk.end_token * a.plan.top_k;

    for (int64_t pair = (int64_t)chunk.first_token * a.plan.top_k + lane_id(); pair < end;
         pair += EPX_WARP) {
        if (a.plan.row[pair] >= 0)
            send_record(a, pair);
        if (pair % a.plan.top_k == 0)
            a.plan.token_num[pair / a.plan.top_k] = place_of(a.plan, pair, INT32_MAX);
    }
}

/* What every block works out for itself from the count matrix. */
struct offsets {
    const int32_t *matrix; /* in shared memory if it fits */
    int64_t records[EPX_MOST_DEVICE_RANKS + 1]; /* that came from the ranks before */
    int32_t send_rows[EPX_MOST_DEVICE_RANKS];   /* kept, as far as this block sees */
    int32_t recv_rows[EPX_MOST_DEVICE_RANKS];
    int64_t row_base[EPX_MOST_DEVICE_RANKS]; /* rank-major: first slot of this rank's rows there */
    int64_t required[EPX_MOST_DEVICE_RANKS];
    int32_t short_rank;
};

static __device__ __forceinline__ const int32_t *counts_from(const struct epx_route_tokens &a,
                                                             const struct offsets &o,
                                                             int32_t source)
{
    return o.matrix + (int64_t)source * num_counts(a);
}

/* The whole block; the counters of the warps are not needed any more. */
static __device__ void read_matrix(const struct epx_route_tokens &a, int32_t *shared_counts,
                                   struct offsets &o)
{
    const int32_t *matrix = (const int32_t *)(const void *)a.plan.counts[a.comm.rank];
    int64_t num = (int64_t)a.comm.num_ranks * num_counts(a);

    for (int64_t i = threadIdx.x; num <= MOST_SHARED_COUNTS && i < num; i += blockDim.x)
        shared_counts[i] = matrix[i];
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x)
        o.send_rows[r] = o.recv_rows[r] = 0;
    if (threadIdx.x == 0)
        o.matrix = num <= MOST_SHARED_COUNTS ? shared_counts : matrix;
    __syncthreads();
}

static __device__ int64_t inclusive_scan(int64_t value)
{
    for (int32_t d = 1; d < EPX_WARP; d *= 2) {
        int64_t below = __shfl_up_sync(~0u, value, d);

        value += lane_id() >= d ? below : 0;
    }
    return value;
}

/* Where an expert's pairs from each source start, given the start of its slab; its own view. */
static __device__ void place_local_expert(const struct epx_route_tokens &a,
                                          const struct offsets &o, int32_t expert, int64_t start)
{
    int32_t local = expert - a.plan.first_expert;
    int64_t at = start;

    for (int32_t s = 0; s < a.comm.num_ranks; s++) {
        a.plan.from[(int64_t)local * a.comm.num_ranks + s] = at;
        at += counts_from(a, o, s)[expert];
    }
    if (blockIdx.x == 0) {
        a.plan.expert_offsets[local] = start;
        a.plan.expert_counts[local] = (int32_t)(at - start < INT32_MAX ? at - start : INT32_MAX);
    }
}

/* One warp: the slabs of one rank in expert-major order; returns the rows that they take. */
static __device__ int64_t offset_rank(const struct epx_route_tokens &a, const struct offsets &o,
                                      int32_t rank)
{
    int32_t first = epx_first_expert(rank, a.plan.num_experts, a.comm.num_ranks);
    int32_t end = epx_first_expert(rank + 1, a.plan.num_experts, a.comm.num_ranks);
    int64_t start = 0;

    for (int32_t at = first; at < end; at += EPX_WARP) {
        int32_t expert = at + lane_id();
        int64_t total = 0, before = 0, slab, through;

        for (int32_t s = 0; expert < end && s < a.comm.num_ranks; s++) {
            int32_t pairs = counts_from(a, o, s)[expert];

            before += s < a.comm.rank ? pairs : 0;
            total += pairs;
        }
        slab = epx_round_up(total, a.plan.alignment);
        through = inclusive_scan(slab);
        if (expert < end) {
            a.plan.base[expert] = start + through - slab + before;
            if (rank == a.comm.rank)
                place_local_expert(a, o, expert, start + through - slab);
        }
        start += __shfl_sync(~0u, through, EPX_WARP - 1);
    }
    return start;
}

/* One warp, rank-major: this rank's first row there; returns the rows that come there. */
static __device__ int64_t offset_rows(const struct epx_route_tokens &a, int32_t rank,
                                      struct offsets &o)
{
    int64_t rows = 0;

    for (int32_t s = 0; s < a.comm.num_ranks; s++) {
        if (s == a.comm.rank)
            o.row_base[rank] = rows;
        if (rank == a.comm.rank)
            a.plan.from[s] = rows;
        rows += counts_from(a, o, s)[a.plan.num_experts + rank];
    }
    return rows;
}

static __device__ void show_counts(const struct epx_route_tokens &a, const struct offsets &o)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t required = o.required[a.comm.rank], capacity = plan.capacities[a.comm.rank];

    for (int32_t s = (int32_t)threadIdx.x; s < a.comm.num_ranks; s += (int32_t)blockDim.x)
        plan.rank_counts[s] = counts_from(a, o, s)[plan.num_experts + a.comm.rank];
    if (threadIdx.x == 0) {
        *plan.required_rows = required;
        *plan.num_rows = plan.drops && required > capacity ? capacity : required;
        plan.expert_offsets[plan.num_local] = *plan.num_rows;
    }
    for (int32_t e = (int32_t)threadIdx.x; plan.drops && !plan.rank_major && e < plan.num_local;
         e += (int32_t)blockDim.x) {
        int64_t offset = plan.expert_offsets[e] < capacity ? plan.expert_offsets[e] : capacity;
        int64_t room = capacity - offset;

        plan.expert_offsets[e] = offset;
        plan.expert_counts[e] = (int32_t)(plan.expert_counts[e] < room ? plan.expert_counts[e]
                                                                       : room);
    }
}

/* The failed routing's view: rank-major counts are those of the pairs that would have come. */
static __device__ void show_pairs(const struct epx_route_tokens &a, const struct offsets &o)
{
    for (int32_t e = (int32_t)threadIdx.x; e < a.plan.num_local; e += (int32_t)blockDim.x) {
        int64_t pairs = 0;

        for (int32_t s = 0; s < a.comm.num_ranks; s++)
            pairs += counts_from(a, o, s)[a.plan.first_expert + e];
        a.plan.expert_counts[e] = (int32_t)(pairs < INT32_MAX ? pairs : INT32_MAX);
    }
}

/* Every block works out the same and writes the same; the first one shows it in the view. */
static __device__ void find_offsets(const struct epx_route_tokens &a, struct offsets &o)
{
    int32_t warp = (int32_t)threadIdx.x / EPX_WARP, warps = (int32_t)blockDim.x / EPX_WARP;

    for (int32_t d = warp; d < a.comm.num_ranks; d += warps) {
        int64_t rows = a.plan.rank_major ? offset_rows(a, d, o) : offset_rank(a, o, d);

        if (lane_id() == 0)
            o.required[d] = rows;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        o.records[0] = 0;
        for (int32_t s = 0; s < a.comm.num_ranks; s++)
            o.records[s + 1] =
                o.records[s] + counts_from(a, o, s)[a.plan.num_experts + a.comm.rank];
        o.short_rank = -1;
        for (int32_t d = a.comm.num_ranks - 1; d >= 0; d--)
            if (o.required[d] > a.plan.capacities[d])
                o.short_rank = d;
    }
    if (blockIdx.x == 0)
        show_counts(a, o);
    __syncthreads();
    if (blockIdx.x == 0 && a.plan.rank_major && o.short_rank >= 0 && !a.plan.drops)
        show_pairs(a, o);
}

/* The slot that a pair of this rank would have with endless room. */
static __device__ int64_t slot_of(const struct epx_device_plan &plan, const struct offsets &o,
                                  int64_t pair, int64_t first_of_row, int32_t rank)
{
    if (plan.rank_major)
        return o.row_base[rank] + plan.row[first_of_row];
    return plan.base[plan.experts[pair]] + plan.index[pair];
}

/* The row that begins with this pair, in the token's list; its first slot is of a kept pair. */
static __device__ void list_row(const struct epx_device_plan &plan, struct offsets &o,
                                int64_t pair, int32_t rank)
{
    int64_t first = pair - pair % plan.top_k, token = pair / plan.top_k;
    int64_t at = token * plan.most_rows + plan.place[pair], slot = -1;

    for (int64_t p = pair; slot < 0 && p < first + plan.top_k; p++)
        if (plan.experts[p] >= 0 && plan.owner[plan.experts[p]] == rank) {
            slot = slot_of(plan, o, p, pair, rank);
            slot = slot < plan.capacities[rank] ? slot : -1;
        }
    plan.token_slot[at] = (int32_t)slot;
    if (slot >= 0)
        atomicAdd(&o.send_rows[rank], 1);
    else if (plan.rank_major)
        atomicAdd((unsigned long long *)plan.dropped, 1ULL);
}

static __device__ int64_t first_pair_of_row(const struct epx_device_plan &plan, int64_t pair,
                                            int32_t rank)
{
    int64_t p = pair - pair % plan.top_k;

    while (plan.row[p] < 0 || plan.owner[plan.experts[p]] != rank)
        p++;
    return p;
}

static __device__ void assign_pair(const struct epx_device_plan &plan, struct offsets &o,
                                   int64_t pair)
{
    int32_t expert = plan.experts[pair], rank = expert >= 0 ? plan.owner[expert] : -1;
    int64_t slot = -1;

    if (rank >= 0) {
        slot = slot_of(plan, o, pair, plan.rank_major ? first_pair_of_row(plan, pair, rank) : 0,
                       rank);
        if (slot >= plan.capacities[rank]) {
            slot = -1;
            if (!plan.rank_major)
                atomicAdd((unsigned long long *)plan.dropped, 1ULL);
        }
        if (plan.row[pair] >= 0)
            list_row(plan, o, pair, rank);
    }
    plan.slots[pair] = (int32_t)slot;
    plan.pair_rank[pair] = slot >= 0 ? rank : -1;
}

static __device__ void assign_slots(const struct epx_route_tokens &a, struct offsets &o)
{
    int64_t pairs = (int64_t)a.num_tokens * a.plan.top_k;
    int64_t all = (int64_t)a.plan.max_tokens * a.plan.top_k;

    for (int64_t p = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; p < all;
         p += (int64_t)gridDim.x * blockDim.x) {
        if (p < pairs)
            assign_pair(a.plan, o, p);
        else
            a.plan.slots[p] = -1;
    }
}

static __device__ void index_expert_major(const struct epx_route_tokens &a, int32_t source,
                                          struct epx_wire_record *record, int64_t capacity)
{
    struct epx_wire_pair *pairs = epx_wire_pairs(record);
    int32_t kept = 0;

    for (int32_t i = 0; i < record->num_pairs; i++) {
        struct epx_wire_pair pair = pairs[i];
        int64_t local = pair.expert_choice >> 8;
        int64_t slot = a.plan.from[local * a.comm.num_ranks + source] + pair.slot;

        if (slot >= capacity)
            continue;
        pair.slot = (int32_t)slot;
        pairs[kept++] = pair;
        a.plan.row_tokens[slot] = record->token;
        a.plan.row_ranks[slot] = source;
    }
    record->num_pairs = record->num_slots = kept;
}

static __device__ void index_rank_major(const struct epx_route_tokens &a, int32_t source,
                                        int64_t row, struct epx_wire_record *record,
                                        int64_t capacity)
{
    struct epx_wire_pair *pairs = epx_wire_pairs(record);
    int64_t slot = a.plan.from[source] + row;
    int32_t *experts = a.plan.row_expert_ids + slot * a.plan.top_k;

    record->num_slots = slot < capacity;
    record->num_pairs = slot < capacity ? record->num_pairs : 0;
    if (slot >= capacity)
        return;
    a.plan.row_tokens[slot] = record->token;
    a.plan.row_ranks[slot] = source;
    for (int32_t k = 0; k < a.plan.top_k; k++)
        experts[k] = -1;
    for (int32_t i = 0; i < record->num_pairs; i++) {
        pairs[i].slot = (int32_t)slot;
        experts[pairs[i].expert_choice & 255] = (int32_t)(pairs[i].expert_choice >> 8);
        atomicAdd(&a.plan.expert_counts[pairs[i].expert_choice >> 8], 1);
    }
}

/* The records that came: from indices to slots, and what the view says of each row. */
static __device__ void index_records(const struct epx_route_tokens &a, struct offsets &o)
{
    int64_t capacity = a.plan.capacities[a.comm.rank], all = o.records[a.comm.num_ranks];
    int32_t source = 0;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * blockDim.x) {
        struct epx_wire_record *record;

        while (i >= o.records[source + 1])
            source++;
        record = epx_wire_record_at(&a.plan, a.plan.records[a.comm.rank], source,
                                    i - o.records[source]);
        if (a.plan.rank_major)
            index_rank_major(a, source, i - o.records[source], record, capacity);
        else
            index_expert_major(a, source, record, capacity);
        if (record->num_slots)
            atomicAdd(&o.recv_rows[source], 1);
    }
}

/* Rows between the slabs, found from `from` of the last source and the next slab's start. */
static __device__ void index_padding(const struct epx_route_tokens &a, const struct offsets &o)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t capacity = plan.capacities[a.comm.rank], most = plan.alignment - 1;
    int32_t last = a.comm.num_ranks - 1;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
         !plan.rank_major && i < plan.num_local * most; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t local = i / most, start = plan.from[local * a.comm.num_ranks];
        int64_t end = plan.from[local * a.comm.num_ranks + last] +
                      counts_from(a, o, last)[plan.first_expert + local];
        int64_t slot = end + i % most;

        if (slot < start + epx_round_up(end - start, plan.alignment) && slot < capacity)
            plan.row_tokens[slot] = plan.row_ranks[slot] = -1;
    }
}

static __device__ void add_kept_rows(const struct epx_route_tokens &a, const struct offsets &o)
{
    __syncthreads();
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x) {
        atomicAdd(&a.plan.send_rows[r], o.send_rows[r]);
        atomicAdd(&a.plan.recv_rows[r], o.recv_rows[r]);
    }
}

static __device__ struct epx_outcome outcome_short(const struct epx_route_tokens &a,
                                                   const struct offsets &o)
{
    struct epx_outcome outcome = {EPX_ERR_TRUNCATE, EPX_OUTCOME_SHORT, o.short_rank, 0,
                                  o.required[o.short_rank], a.plan.capacities[o.short_rank], 0};

    return outcome;
}

static __device__ struct epx_outcome outcome_of_ids(const struct epx_route_tokens &a)
{
    struct epx_outcome outcome = {EPX_ERR_ARG, EPX_OUTCOME_BAD_ID, 0, 0, 0, 0, 0};
    int64_t pair = (int64_t)~a.plan.bad[1];

    if (a.plan.bad[0] == 0)
        return epx_outcome();
    outcome.rank = (int32_t)(a.plan.bad[0] < INT32_MAX ? a.plan.bad[0] : INT32_MAX);
    outcome.a = pair / a.plan.top_k;
    outcome.b = pair % a.plan.top_k;
    outcome.c = epx_expert_id(a.ids, a.plan.index_bits, pair);
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
        a.comm.state->stats.dropped_rows += (uint64_t)*a.plan.dropped;
    }
    a.plan.bad[0] = a.plan.bad[1] = 0;
    end_rounds(a.comm, exchanged, 0, *a.plan.num_rows, outcome);
}

static __device__ bool exchange_counts(const struct epx_route_tokens &a, struct exchange &x,
                                       int32_t counting_warps, int32_t *counts)
{
    struct chunk chunk = chunk_of(a, counting_warps, counts);

    zero_counts(a, counting_warps, counts);
    if (blockIdx.x == 0)
        zero_sums(a);
    __syncthreads();
    count_chunk(a, chunk);
    __syncthreads();
    sum_over_warps(a, counting_warps, counts);
    if (!grid_barrier(a.comm, x) || !await_ready(a.comm, x, NULL))
        return false;
    sum_over_blocks(a, counting_warps, counts);
    EPX_DELAY(a.comm);
    __syncthreads();
    number_chunk(a, chunk);
    send_records(a, chunk);
    signal_arrival(a.comm);
    return true;
}

static __global__ void __launch_bounds__(ROUTING_THREADS)
    route_tokens(const __grid_constant__ struct epx_route_tokens a, int32_t counting_warps,
                 int32_t in_shared)
{
    extern __shared__ int32_t shared_counts[];
    __shared__ struct exchange x;
    __shared__ struct offsets o;
    int32_t *counts = in_shared ? shared_counts
                                : a.plan.warp_counts + (int64_t)blockIdx.x * num_counts(a);
    bool exchanged = false;

    begin_exchange(a.comm, a.note, 0, x);
    if (x.outcome.code == EPX_SUCCESS)
        exchanged = exchange_counts(a, x, counting_warps, counts);
    if (exchanged && await_arrivals(a.comm, x, 1)) {
        read_matrix(a, shared_counts, o);
        find_offsets(a, o);
        if (o.short_rank >= 0 && !a.plan.drops) {
            if (threadIdx.x == 0)
                x.outcome = outcome_short(a, o);
        } else {
            assign_slots(a, o);
            index_records(a, o);
            index_padding(a, o);
            add_kept_rows(a, o);
        }
    }
    if (is_last_block(a.comm) && threadIdx.x == 0)
        end_routing(a, x, exchanged);
}

int epx_launch_route_tokens(const struct epx_route_tokens *args, EPX_Stream stream)
{
    int64_t counts = args->plan.num_experts + args->comm.num_ranks;
    int64_t fit = MOST_SHARED_COUNTS / counts, most = ROUTING_THREADS / EPX_WARP;
    int32_t warps = (int32_t)(fit > most ? most : fit);
    int64_t matrix = args->comm.num_ranks * counts;
    size_t words = (size_t)(warps * counts), bytes;

    if (matrix <= MOST_SHARED_COUNTS && (size_t)matrix > words)
        words = (size_t)matrix;
    bytes = words * sizeof(int32_t);

    route_tokens<<<(unsigned)args->comm.blocks, ROUTING_THREADS, bytes, stream>>>(
        *args, warps ? warps : 1, warps > 0);
    return epx_cuda_status(cudaGetLastError());
}

int epx_load_route_tokens(void)
{
    return epx_cuda_status(cudaFuncSetAttribute(route_tokens,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                MOST_SHARED_COUNTS * (int)sizeof(int32_t)));
}
