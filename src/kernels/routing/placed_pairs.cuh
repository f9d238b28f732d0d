/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * placed_pairs.cuh - the second half of a routing of ranks that store into each other's memory,
 * once they know the counts of all: a pair is numbered and has its slot, at once, and goes with it
 * into the record of its row. Records for a rank come packed (device_plan.h); record_lists.cuh has
 * how they are sent. Pairs without room are not; the rest of a warp's room for them stays empty.
 */
#ifndef EPX_KERNELS_ROUTING_PLACED_PAIRS_CUH
#define EPX_KERNELS_ROUTING_PLACED_PAIRS_CUH

#include "kernels/routing/record_lists.cuh"
#include "kernels/routing/slots.cuh"

/* What the lanes of a warp share while they place pairs. */
struct placing {
    const struct epx_route_tokens &a;
    const struct rank_table &table;
    struct offsets &o;
    const struct record_lists &lists;
    struct counters counters;
    struct lanes lanes;
};

/* What a lane knows of its pair. */
struct placed_pair {
    int32_t expert, rank; /* -1 = none */
    uint32_t same;        /* lanes with pairs for the same rank */
    int32_t row;          /* number among this rank's rows for the rank */
    int64_t slot;         /* -1 = none */
    int32_t number;       /* among this rank's pairs for the rank, of which some may not be sent */
};

static __device__ __forceinline__ int32_t taken(const struct counters &counters, int32_t counter)
{
    return counters.before[counter] + counters.counts[counter];
}

static __device__ __forceinline__ int32_t counter_of_rows(const struct placing &p, int32_t rank)
{
    return p.a.plan.shape.num_experts + rank;
}

static __device__ __forceinline__ int32_t counter_of_pairs(const struct placing &p, int32_t rank)
{
    return num_counts(p.a) + rank;
}

/* The slot of a pair, -1 = there is no room; alike are the lanes with pairs of the same expert. */
static __device__ int64_t slot_of_placed(const struct placing &p, const struct placed_pair &pair,
                                         uint32_t alike)
{
    int64_t slot = p.a.plan.shape.rank_major
                       ? p.o.row_base[pair.rank] + pair.row
                       : p.o.base[pair.expert] + taken(p.counters, pair.expert) +
                             __popc(alike & lanes_below());

    if (p.o.short_rank >= 0 && slot >= limit_of(p.a.plan, p.table, p.o, pair.expert, pair.rank))
        return -1;
    return slot;
}

/*
 * The whole warp: numbers the pairs of a step, given which lanes lead a row. Lanes with the same
 * counter take consecutive numbers, in lane order. A pair whose row was led in the step before
 * finds that row counted. Returns the lanes whose pairs have room.
 */
static __device__ uint32_t number_lanes(const struct placing &p, struct placed_pair &pair,
                                        uint32_t leaders)
{
    const bool is = pair.rank >= 0, by_expert = !p.a.plan.shape.rank_major;
    const int32_t rows = counter_of_rows(p, pair.rank), pairs = counter_of_pairs(p, pair.rank);
    const uint32_t alike = by_expert ? same_key(pair.expert, p.a.plan.shape.num_experts) : 0;
    uint32_t kept;

    if (is) {
        uint32_t led = leaders & pair.same & (lanes_below() << 1 | 1);

        pair.row = taken(p.counters, rows) + __popc(led) - 1;
        pair.slot = slot_of_placed(p, pair, alike);
    }
    kept = __ballot_sync(~0u, pair.slot >= 0);
    if (is)
        pair.number = taken(p.counters, pairs) + __popc(kept & pair.same & lanes_below());
    __syncwarp();
    if (is && by_expert && (alike & lanes_below()) == 0)
        p.counters.counts[pair.expert] += __popc(alike);
    if (is && (pair.same & lanes_below()) == 0) {
        p.counters.counts[rows] += __popc(leaders & pair.same);
        p.counters.counts[pairs] += __popc(kept & pair.same);
    }
    __syncwarp();
    return kept;
}

/* The whole warp: how many of the leaders of a lane's token go to lower ranks. */
static __device__ int32_t find_place(uint32_t leaders, int32_t rank, int32_t most_rows)
{
    int32_t place = 0;

#pragma unroll 1
    for (int32_t i = 0; i < most_rows; i++) {
        int32_t other = __shfl_sync(~0u, rank, leaders ? __ffs((int)leaders) - 1 : lane_id());

        place += other < rank;
        leaders &= leaders - 1;
    }
    return place;
}

/* Sends a pair that has room. */
static __device__ void send_placed(const struct placing &p, const struct placed_pair &pair,
                                   int32_t choice)
{
    uint32_t local = (uint32_t)(pair.expert - p.table.first_expert[pair.rank]);

    ((int2 *)(void *)p.lists.pairs[pair.rank])[pair.number] =
        make_int2((int32_t)pair.slot, (int32_t)(local << 8 | (uint32_t)choice));
}

/* Sends the record of a row but for its pairs, and notes where the row goes: a row of which no pair
 * has room too. number is that of the row's first pair, slot the pair's. */
static __device__ void send_row(const struct placing &p, const struct placed_pair &pair,
                                int32_t token, int32_t place, int32_t num)
{
    const struct epx_device_plan &plan = p.a.plan;
    int64_t at = (int64_t)token * plan.most_rows + place;

    store_head((struct epx_wire_record *)(void *)p.lists.records[pair.rank] + pair.row, token,
               epx_packed_at(&plan, pair.row, (uint32_t)pair.number), place, num,
               plan.shape.rank_major ? num > 0 : num);
    plan.token_rank[at] = pair.rank;
    plan.token_slot[at] = (int32_t)pair.slot;
}

/* Where room is short: counts what of a pair and its row is dropped and kept. Seldom called, it
 * takes values, so that those of its caller stay in registers. */
static __device__ EPX_COLD void count_drop(struct offsets &o, int32_t rank, bool drops,
                                           bool keeps_row)
{
    if (rank >= 0 && drops)
        atomicAdd(&o.dropped, 1u);
    if (rank >= 0 && keeps_row && is_short(o, rank))
        atomicAdd(&o.send_rows[rank], 1);
}

/* Writes what this rank keeps of a pair. */
static __device__ void keep_pair(const struct epx_device_plan &plan, const struct position &at,
                                 const struct placed_pair &pair, int32_t lead_place)
{
    store_pair(plan, at.pair, {pair.expert, pair.number, pair.row, lead_place});
    plan.view.slots[at.pair] = (int32_t)pair.slot;
    plan.pair_rank[at.pair] = pair.slot >= 0 ? pair.rank : -1;
}

/* Places the pairs of whole tokens, a lane each. */
static __device__ void place_step(const struct placing &p, const struct position &at,
                                  int32_t expert)
{
    const struct epx_device_plan &plan = p.a.plan;
    struct placed_pair pair = {expert, rank_of(plan, p.table, expert), 0, 0, -1, 0};
    uint32_t own, leaders, kept;
    int32_t place, lead;
    int64_t slot;

    pair.same = same_key(pair.rank, p.a.comm.num_ranks);
    own = pair.same & p.lanes.same_token;
    lead = pair.rank >= 0 ? __ffs((int)own) - 1 - lane_id() + at.choice : 0;
    leaders = __ballot_sync(~0u, pair.rank >= 0 && lead == at.choice);
    place = find_place(leaders & p.lanes.same_token, pair.rank, plan.most_rows);
    kept = number_lanes(p, pair, leaders) & own;
    slot = __shfl_sync(~0u, (int32_t)pair.slot, kept ? __ffs((int)kept) - 1 : lane_id());
    if (!at.valid)
        return;
    keep_pair(plan, at, pair, lead << 8 | place);
    if (p.o.short_rank >= 0)
        count_drop(p.o, pair.rank, pair.slot < 0 && (!plan.shape.rank_major || lead == at.choice),
                   lead == at.choice && kept);
    if (pair.slot >= 0)
        send_placed(p, pair, at.choice);
    pair.slot = slot;
    if (pair.rank >= 0 && lead == at.choice)
        send_row(p, pair, at.token, place, __popc(kept));
    if (at.choice == 0)
        plan.token_num[at.token] = __popc(leaders & p.lanes.same_token);
}

/* Where a token takes two steps: the row that a pair leads, with what its other pairs have left in
 * memory. */
static __device__ void send_led_row(const struct placing &p, const struct position &at)
{
    const struct epx_device_plan &plan = p.a.plan;
    struct epx_device_pair lead = load_pair(plan, at.pair);
    struct placed_pair pair = {lead.expert, rank_of(plan, p.table, lead.expert), 0, lead.row, -1,
                               lead.index};
    int32_t num = 0;

    for (int64_t i = at.pair; i < at.pair - at.choice + plan.shape.top_k; i++) {
        struct epx_device_pair other = load_pair(plan, i);

        if (other.expert < 0 || lead_of(other.lead_place) != at.choice || plan.view.slots[i] < 0)
            continue;
        if (num++ == 0) {
            pair.slot = plan.view.slots[i];
            pair.number = other.index;
        }
    }
    send_row(p, pair, at.token, place_of(lead.lead_place), num);
    count_drop(p.o, pair.rank, false, num > 0);
}

/* Where a token takes two steps: places the pairs of one, and after the second sends its rows. */
static __device__ EPX_COLD void place_half(struct placing p, struct position at, int32_t expert)
{
    const struct epx_device_plan &plan = p.a.plan;
    struct placed_pair pair = {expert, rank_of(plan, p.table, expert), 0, 0, -1, 0};
    struct group group = group_in_memory(plan, p.table, at, pair.rank);
    bool leads = pair.rank >= 0 && group.lead == at.choice;

    pair.same = same_key(pair.rank, p.a.comm.num_ranks);
    number_lanes(p, pair, __ballot_sync(~0u, leads));
    if (at.valid)
        keep_pair(plan, at, pair, group.lead << 8 | group.place);
    if (p.o.short_rank >= 0)
        count_drop(p.o, pair.rank, pair.slot < 0 && (!plan.shape.rank_major || leads), false);
    if (pair.slot >= 0)
        send_placed(p, pair, at.choice);
    if (at.valid && at.choice == 0)
        plan.token_num[at.token] = group.rows;
    __syncwarp();
}

/* Where a token takes two steps: sends its rows after the second. */
static __device__ EPX_COLD void send_led_rows(struct placing p, struct position last)
{
    for (int32_t choice = lane_id(); choice < p.a.plan.shape.top_k; choice += EPX_WARP) {
        struct position at = {last.token, choice, last.pair - last.choice + choice, true};
        struct epx_device_pair pair = load_pair(p.a.plan, at.pair);

        if (pair.expert >= 0 && lead_of(pair.lead_place) == choice)
            send_led_row(p, at);
    }
}

/* The whole warp: places all pairs of its chunk; expert is that of the first step. */
static __device__ void place_chunk(const struct placing &p, const struct chunk &chunk,
                                   int32_t expert)
{
    int32_t top_k = p.a.plan.shape.top_k, steps = num_steps(p.lanes, chunk);
    struct position at = position_of(p.lanes, top_k, chunk, 0);

#pragma unroll 1
    for (int32_t step = 1; step <= steps; step++) {
        struct position next = position_of(p.lanes, top_k, chunk, step);
        int32_t next_expert = load_expert(p.a.plan, next);

        if (p.lanes.tokens)
            place_step(p, at, expert);
        else
            place_half(p, at, expert);
        if (p.lanes.tokens == 0 && step % 2 == 0)
            send_led_rows(p, at);
        at = next;
        expert = next_expert;
    }
}

/* The slots of tokens that this rank does not have. */
static __device__ void clear_slots(const struct epx_route_tokens &a)
{
    int64_t all = (int64_t)a.plan.shape.max_tokens * a.plan.shape.top_k;

#pragma unroll 1
    for (int64_t p = (int64_t)a.num_tokens * a.plan.shape.top_k + routing_thread(a); p < all;
         p += num_routing_threads(a))
        a.plan.view.slots[p] = -1;
}

enum { SOURCE_WARPS = 8, RECORD_LANES = 2, PAIRS_AT_ONCE = 4 };

/* Expert-major: shows which rank the rows of each slab come from, which offsets tell. Warps share
 * the rows from one source. */
static __device__ void show_sources(const struct epx_route_tokens &a, const struct offsets &o)
{
    const struct epx_plan_shape &shape = a.plan.shape;
    const uint32_t ranks = (uint32_t)a.comm.num_ranks;
    const uint32_t all = (uint32_t)shape.num_local * ranks * SOURCE_WARPS;

#pragma unroll 1
    for (uint32_t i = (uint32_t)routing_warp(a); i < all; i += (uint32_t)num_routing_warps(a)) {
        uint32_t from = i / SOURCE_WARPS;
        int32_t local = (int32_t)(from / ranks), source = (int32_t)(from % ranks);
        int64_t first = o.from[from];
        int64_t stop = first + counts_from(a, o, source)[shape.first_expert + local];
        int64_t limit = epx_slab_limit(&shape, local, o.capacity[a.comm.rank]);

        stop = stop < limit ? stop : limit;
#pragma unroll 1
        for (int64_t slot = first + i % SOURCE_WARPS * EPX_WARP + lane_id(); slot < stop;
             slot += SOURCE_WARPS * EPX_WARP)
            a.plan.view.row_ranks[slot] = source;
    }
}

/* What needs no records: the view but for the tokens and choices of rows, and slots that nobody
 * has. */
static __device__ void show_offsets(const struct epx_route_tokens &a, const struct offsets &o)
{
    if (shows_view()) {
        show_counts(a, o);
        show_rows(a, o);
    }
    if (!a.plan.shape.rank_major)
        show_sources(a, o);
    clear_slots(a);
    index_padding(a, o, {routing_warp(a), num_routing_warps(a)});
}

/* Expert-major: shows token and choice of a record's rows, by lanes that take turns at pairs. */
static __device__ void show_tokens(const struct epx_device_plan &plan, const int4 &head,
                                   const struct epx_wire_pair *pairs)
{
    int32_t num = num_pairs_of(head);

#pragma unroll 1
    for (int32_t first = lane_id() % RECORD_LANES; first < num;
         first += RECORD_LANES * PAIRS_AT_ONCE) {
        int2 pair[PAIRS_AT_ONCE];

#pragma unroll
        for (int32_t j = 0; j < PAIRS_AT_ONCE; j++)
            pair[j] = first + j * RECORD_LANES < num
                          ? *(const int2 *)(const void *)&pairs[first + j * RECORD_LANES]
                          : make_int2(-1, 0);
#pragma unroll
        for (int32_t j = 0; j < PAIRS_AT_ONCE; j++)
            if (pair[j].x >= 0) {
                plan.view.row_tokens[pair[j].x] = head.x;
                plan.view.row_choices[pair[j].x] = pair[j].y & 255;
            }
    }
}

/* The records that came, RECORD_LANES lanes each: shows the token of each row, and its choice. */
static __device__ void take_records(const struct epx_route_tokens &a, struct offsets &o)
{
    int64_t all = o.records[a.comm.num_ranks], lanes = num_routing_threads(a) / RECORD_LANES;
    bool clips = is_short(o, a.comm.rank), is_first = lane_id() % RECORD_LANES == 0;
    int32_t source = 0;

#pragma unroll 1
    for (int64_t i = routing_thread(a) / RECORD_LANES; i < all; i += lanes) {
        struct epx_wire_record *record;
        int4 head;

        while (i >= o.records[source + 1])
            source++;
        record =
            epx_wire_record_at(&a.plan, a.plan.records[a.comm.rank], source, i - o.records[source]);
        head = *(const int4 *)(const void *)record;
        if (!a.plan.shape.rank_major)
            show_tokens(a.plan, head, epx_wire_pairs_at(record, (uint32_t)head.y));
        else if (is_first)
            index_rank_major(a, o, source, i - o.records[source], record, head);
        if (clips && is_first && num_pairs_of(head))
            atomicAdd(&o.recv_rows[source], 1);
    }
}

#endif
