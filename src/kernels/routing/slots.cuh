/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slots.cuh - the last part of a routing: with the offsets every block turns indices into slots,
 * those of this rank's pairs and those of the records that it received.
 */
#ifndef EPX_KERNELS_ROUTING_SLOTS_CUH
#define EPX_KERNELS_ROUTING_SLOTS_CUH

#include "kernels/routing/offsets.cuh"

/* The slot that a pair of this rank would have with endless room. */
static __device__ __forceinline__ int64_t slot_of(const struct epx_device_plan &plan,
                                                  const struct offsets &o,
                                                  const struct epx_device_pair &pair, int32_t rank)
{
    return plan.shape.rank_major ? o.row_base[rank] + pair.row : o.base[pair.expert] + pair.index;
}

/* The first slot that a pair of an expert of a rank does not get. */
static __device__ __forceinline__ int64_t limit_of(const struct epx_device_plan &plan,
                                                   const struct rank_table &table,
                                                   const struct offsets &o, int32_t expert,
                                                   int32_t rank)
{
    return epx_slab_limit(&plan.shape, expert - table.first_expert[rank], o.capacity[rank]);
}

/* Unless rank-major, where room is short: the first slot of a row, given that of its first pair. */
static __device__ EPX_COLD int64_t first_kept(const struct epx_device_plan &plan,
                                              const struct rank_table &table,
                                              const struct offsets &o, const struct position &at,
                                              int32_t rank, int64_t slot)
{
    for (int32_t choice = at.choice + 1; slot < 0 && choice < plan.shape.top_k; choice++) {
        struct epx_device_pair other = load_pair(plan, at.pair - at.choice + choice);

        if (rank_of(plan, table, other.expert) != rank)
            continue;
        slot = slot_of(plan, o, other, rank);
        slot = slot < limit_of(plan, table, o, other.expert, rank) ? slot : -1;
    }
    return slot;
}

/* The first slot of the row that begins with this pair, given the pair's own; -1 = dropped. Where
 * room is short the rows that are kept are counted. */
static __device__ int64_t slot_of_row(const struct epx_device_plan &plan,
                                      const struct rank_table &table, struct offsets &o,
                                      const struct position &at, int32_t rank, int64_t slot)
{
    if (!is_short(o, rank))
        return slot;
    if (!plan.shape.rank_major)
        slot = first_kept(plan, table, o, at, rank, slot);
    if (slot >= 0)
        atomicAdd(&o.send_rows[rank], 1);
    return slot;
}

static __device__ void assign_pair(const struct epx_device_plan &plan,
                                   const struct rank_table &table, struct offsets &o,
                                   const struct position &at, const struct epx_device_pair &pair)
{
    int32_t rank = rank_of(plan, table, pair.expert);
    int64_t slot = -1;

    if (rank >= 0) {
        bool leads = lead_of(pair.lead_place) == at.choice;

        slot = slot_of(plan, o, pair, rank);
        if (slot >= limit_of(plan, table, o, pair.expert, rank)) {
            slot = -1;
            if (!plan.shape.rank_major || leads)
                atomicAdd((unsigned long long *)plan.dropped, 1ULL);
        }
        if (leads)
            plan.token_slot[(int64_t)at.token * plan.most_rows + place_of(pair.lead_place)] =
                (int32_t)slot_of_row(plan, table, o, at, rank, slot);
    }
    plan.view.slots[at.pair] = (int32_t)slot;
    plan.pair_rank[at.pair] = slot >= 0 ? rank : -1;
}

static __device__ void assign_slots(const struct epx_route_tokens &a,
                                    const struct rank_table &table, struct offsets &o)
{
    const struct epx_device_plan &plan = a.plan;
    struct chunk chunk = chunk_of(a, (int32_t)blockDim.x / EPX_WARP, NULL);
    struct lanes lanes = lanes_of(plan.shape.top_k);
    int32_t steps = num_steps(lanes, chunk);
    struct position at = position_of(lanes, plan.shape.top_k, chunk, 0);
    struct epx_device_pair pair = {-1, 0, 0, 0};
    int64_t all = (int64_t)plan.shape.max_tokens * plan.shape.top_k;

    if (at.valid)
        pair = load_pair(plan, at.pair);
#pragma unroll 1
    for (int32_t step = 1; step <= steps; step++) {
        struct position next = position_of(lanes, plan.shape.top_k, chunk, step);
        struct epx_device_pair next_pair = pair;

        if (next.valid)
            next_pair = load_pair(plan, next.pair);
        if (at.valid)
            assign_pair(plan, table, o, at, pair);
        at = next;
        pair = next_pair;
    }
#pragma unroll 1
    for (int64_t p = (int64_t)a.num_tokens * plan.shape.top_k + routing_thread(a); p < all;
         p += num_routing_threads(a))
        plan.view.slots[p] = -1;
}

static __device__ __forceinline__ void show_row(const struct epx_device_plan &plan, int64_t slot,
                                                int32_t source, int32_t token)
{
    plan.view.row_tokens[slot] = token;
    plan.view.row_ranks[slot] = source;
}

/* Unless rank-major: a row is that of one pair. */
static __device__ __forceinline__ void show_pair_row(const struct epx_device_plan &plan,
                                                     int64_t slot, int32_t source, int32_t token,
                                                     int32_t choice)
{
    show_row(plan, slot, source, token);
    plan.view.row_choices[slot] = choice;
}

/* What a record says of its pairs, in the third word as it was loaded. */
static __device__ __forceinline__ int32_t num_pairs_of(const int4 &head)
{
    return head.z >> 8 & 255;
}

/* Two pairs of a record, which they follow: read as they came, and written where the kept ones
 * stay. */
static __device__ __forceinline__ int4 *two_pairs(struct epx_wire_record *record, int32_t i)
{
    return (int4 *)(void *)epx_wire_pairs_at(record, EPX_PAIRS_BEHIND) + i / 2;
}

static __device__ __forceinline__ int64_t slot_in_slab(const struct epx_route_tokens &a,
                                                       const struct offsets &o, int32_t source,
                                                       int2 pair)
{
    return o.from[(int64_t)((uint32_t)pair.y >> 8) * a.comm.num_ranks + source] + pair.x;
}

/* Where there is room for all: gives each pair of a record its slot. `two` are the first two pairs,
 * which were loaded with the head. */
static __device__ void index_all(const struct epx_route_tokens &a, const struct offsets &o,
                                 int32_t source, struct epx_wire_record *record, int4 head,
                                 int4 two)
{
#pragma unroll 1
    for (int32_t i = 0; i < num_pairs_of(head); i += 2) {
        if (i)
            two = *two_pairs(record, i);
        two.x = (int32_t)slot_in_slab(a, o, source, make_int2(two.x, two.y));
        show_pair_row(a.plan, two.x, source, head.x, two.y & 255);
        if (i + 1 < num_pairs_of(head)) {
            two.z = (int32_t)slot_in_slab(a, o, source, make_int2(two.z, two.w));
            show_pair_row(a.plan, two.z, source, head.x, two.w & 255);
        }
        *two_pairs(record, i) = two;
    }
}

/* Unless rank-major, where room is short: gives slots to the pairs that are kept; returns how
 * many. */
static __device__ EPX_COLD int32_t index_some(const struct epx_route_tokens &a,
                                              const struct offsets &o, int32_t source,
                                              struct epx_wire_record *record, int4 head)
{
    int2 *pairs = (int2 *)(void *)epx_wire_pairs(record);
    int32_t kept = 0;

    for (int32_t i = 0; i < num_pairs_of(head); i++) {
        int2 pair = pairs[i];
        int64_t slot = slot_in_slab(a, o, source, pair);
        int32_t local = (int32_t)((uint32_t)pair.y >> 8);

        if (slot >= epx_slab_limit(&a.plan.shape, local, o.capacity[a.comm.rank]))
            continue;
        pairs[kept++] = make_int2((int32_t)slot, pair.y);
        show_pair_row(a.plan, slot, source, head.x, pair.y & 255);
    }
    return kept;
}

/* Rank-major: gives the pairs of a record their row's slot; returns how many are kept. */
static __device__ EPX_COLD int32_t index_rank_major(const struct epx_route_tokens &a,
                                                    const struct offsets &o, int32_t source,
                                                    int64_t row, struct epx_wire_record *record,
                                                    int4 head)
{
    const struct epx_device_plan &plan = a.plan;
    int2 *pairs = (int2 *)(void *)epx_wire_pairs(record);
    int64_t slot = o.from[source] + row;
    int32_t *experts = plan.view.row_expert_ids + slot * plan.shape.top_k;

    if (slot >= o.capacity[a.comm.rank])
        return 0;
    show_row(plan, slot, source, head.x);
    for (int32_t k = 0; k < plan.shape.top_k; k++)
        experts[k] = -1;
    for (int32_t i = 0; i < num_pairs_of(head); i++) {
        int2 pair = pairs[i];

        pairs[i].x = (int32_t)slot;
        experts[pair.y & 255] = (int32_t)((uint32_t)pair.y >> 8);
        if (is_short(o, a.comm.rank))
            atomicAdd(&plan.view.expert_counts[(uint32_t)pair.y >> 8], 1);
    }
    return num_pairs_of(head);
}

static __device__ EPX_COLD void clip_record(const struct epx_route_tokens &a, struct offsets &o,
                                            int32_t source, struct epx_wire_record *record,
                                            int32_t kept)
{
    record->num_pairs = (uint8_t)kept;
    record->num_slots = (uint8_t)(a.plan.shape.rank_major ? kept > 0 : kept);
    if (kept)
        atomicAdd(&o.recv_rows[source], 1);
}

/* The records that came: from indices to slots, and what the view says of each row. */
static __device__ void index_records(const struct epx_route_tokens &a, struct offsets &o)
{
    int64_t all = o.records[a.comm.num_ranks];
    bool clips = is_short(o, a.comm.rank);
    int32_t source = 0;

#pragma unroll 1
    for (int64_t i = routing_thread(a); i < all; i += num_routing_threads(a)) {
        struct epx_wire_record *record;
        int32_t kept = 0;
        int4 head, two;

        while (i >= o.records[source + 1])
            source++;
        record =
            epx_wire_record_at(&a.plan, a.plan.records[a.comm.rank], source, i - o.records[source]);
        head = *(const int4 *)(const void *)record;
        two = *two_pairs(record, 0);
        if (a.plan.shape.rank_major)
            kept = index_rank_major(a, o, source, i - o.records[source], record, head);
        else if (clips)
            kept = index_some(a, o, source, record, head);
        else
            index_all(a, o, source, record, head, two);
        if (clips)
            clip_record(a, o, source, record, kept);
    }
}

enum { PADDING_CHUNK = 128 };

/* Marks the rows between the slabs: from behind the pairs of the last source to the slab's end. A
 * warp of the crew marks so many of a slab at a time. */
static __device__ EPX_COLD void index_padding(const struct epx_route_tokens &a,
                                              const struct offsets &o, const struct crew &crew)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t chunks = (epx_most_padding(&plan.shape) + PADDING_CHUNK - 1) / PADDING_CHUNK;
    int32_t ranks = a.comm.num_ranks;

    for (int64_t i = crew.warp; i < plan.shape.num_local * chunks; i += crew.num) {
        int64_t local = chunks == 1 ? i : i / chunks, start = o.from[local * ranks];
        int64_t end = o.from[local * ranks + ranks - 1] +
                      counts_from(a, o, ranks - 1)[plan.shape.first_expert + local];
        int64_t first = end + (i - local * chunks) * PADDING_CHUNK, stop = first + PADDING_CHUNK;
        int64_t next = start + epx_slab_rows(&plan.shape, end - start);

        stop = stop < next ? stop : next;
        stop = stop < o.capacity[a.comm.rank] ? stop : o.capacity[a.comm.rank];
        for (int64_t slot = first + lane_id(); slot < stop; slot += EPX_WARP)
            show_pair_row(plan, slot, -1, -1, -1);
    }
}

/* Adds up, where room is short, what each block has counted: kept rows, and what is dropped. */
static __device__ EPX_COLD void add_kept_rows(const struct epx_route_tokens &a,
                                              const struct offsets &o)
{
    __syncthreads();
    for (int32_t r = (int32_t)threadIdx.x; o.short_rank >= 0 && r < a.comm.num_ranks;
         r += (int32_t)blockDim.x) {
        if (is_short(o, r))
            atomicAdd(&a.plan.send_rows[r], o.send_rows[r]);
        if (is_short(o, a.comm.rank))
            atomicAdd(&a.plan.recv_rows[r], o.recv_rows[r]);
    }
    if (threadIdx.x == 0 && o.dropped)
        atomicAdd((unsigned long long *)a.plan.dropped, (unsigned long long)o.dropped);
}

#endif
