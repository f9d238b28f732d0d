/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slots.cuh - the second half of a routing: with the whole count matrix every block works out
 * where slabs and sources start, then turns indices into slots: those of this rank's pairs, and
 * those of the records that it received.
 */
#ifndef EPX_KERNELS_ROUTING_SLOTS_CUH
#define EPX_KERNELS_ROUTING_SLOTS_CUH

#include "kernels/routing/pairs.cuh"

/* Where slabs and sources start; in shared memory, as is what it points to if that is small. */
struct offsets {
    const int32_t *matrix;
    int64_t *base;                              /* [E] */
    int64_t *from;                              /* [L][R], rank-major [R] */
    int64_t records[EPX_MOST_DEVICE_RANKS + 1]; /* that came from the ranks before each */
    int64_t row_base[EPX_MOST_DEVICE_RANKS]; /* rank-major: first slot of this rank's rows there */
    int64_t required[EPX_MOST_DEVICE_RANKS];
    int64_t capacity[EPX_MOST_DEVICE_RANKS];
    /* rows kept where room is short, as far as this block sees; the matrix tells the others */
    int32_t send_rows[EPX_MOST_DEVICE_RANKS], recv_rows[EPX_MOST_DEVICE_RANKS];
    int32_t short_rank;
};

static __device__ __forceinline__ const int32_t *
counts_from(const struct epx_route_tokens &a, const struct offsets &o, int32_t source)
{
    return o.matrix + (int64_t)source * num_counts(a);
}

static __device__ __forceinline__ bool is_short(const struct offsets &o, int32_t rank)
{
    return o.required[rank] > o.capacity[rank];
}

/* The whole block: reads the matrix into room; if room is NULL the matrix stays where it is. */
static __device__ void read_matrix(const struct epx_route_tokens &a, int32_t *room,
                                   struct offsets &o)
{
    const int32_t *matrix = (const int32_t *)(const void *)a.plan.counts[a.comm.rank];
    int64_t num = (int64_t)a.comm.num_ranks * num_counts(a);

    for (int64_t i = threadIdx.x; room && i < num; i += blockDim.x)
        room[i] = matrix[i];
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x) {
        o.send_rows[r] = o.recv_rows[r] = 0;
        o.capacity[r] = matrix[(int64_t)(r + 1) * num_counts(a) - 1];
    }
    if (threadIdx.x == 0)
        o.matrix = room ? room : matrix;
    __syncthreads();
}

/* Where the pairs of each source start in the slab of a local expert, given the slab's start; shows
 * the slab in the view. */
static __device__ void place_local_expert(const struct epx_route_tokens &a, const struct offsets &o,
                                          int32_t expert, int64_t start)
{
    int32_t local = expert - a.plan.shape.first_expert;
    int64_t at = start;

    for (int32_t s = 0; s < a.comm.num_ranks; s++) {
        o.from[(int64_t)local * a.comm.num_ranks + s] = at;
        at += counts_from(a, o, s)[expert];
    }
    if (blockIdx.x == 0) {
        a.plan.view.expert_offsets[local] = start;
        a.plan.view.expert_counts[local] =
            (int32_t)(at - start < INT32_MAX ? at - start : INT32_MAX);
    }
}

/* One warp: the slabs of one rank in expert-major order; returns the rows that they take. */
static __device__ int64_t offset_rank(const struct epx_route_tokens &a,
                                      const struct rank_table &table, const struct offsets &o,
                                      int32_t rank)
{
    int32_t first = table.first_expert[rank], end = table.first_expert[rank + 1];
    int64_t start = 0;

    for (int32_t at = first; at < end; at += EPX_WARP) {
        int32_t expert = at + lane_id();
        int64_t total = 0, before = 0, slab, through;

        for (int32_t s = 0; expert < end && s < a.comm.num_ranks; s++) {
            int32_t pairs = counts_from(a, o, s)[expert];

            before += s < a.comm.rank ? pairs : 0;
            total += pairs;
        }
        slab = (total + a.plan.shape.alignment - 1) & -(int64_t)a.plan.shape.alignment;
        through = inclusive_scan(slab);
        if (expert < end) {
            o.base[expert] = start + through - slab + before;
            if (rank == a.comm.rank)
                place_local_expert(a, o, expert, start + through - slab);
        }
        start += __shfl_sync(~0u, through, EPX_WARP - 1);
    }
    return start;
}

/* Rank-major: the slot of this rank's first row on a rank; returns the rows that come to it. */
static __device__ EPX_COLD int64_t offset_rows(const struct epx_route_tokens &a, int32_t rank,
                                               struct offsets &o)
{
    int64_t rows = 0;

    for (int32_t s = 0; s < a.comm.num_ranks; s++) {
        if (s == a.comm.rank)
            o.row_base[rank] = rows;
        if (rank == a.comm.rank)
            o.from[s] = rows;
        rows += counts_from(a, o, s)[a.plan.shape.num_experts + rank];
    }
    return rows;
}

static __device__ void show_totals(const struct epx_route_tokens &a, const struct offsets &o)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t required = o.required[a.comm.rank], capacity = o.capacity[a.comm.rank];

    for (int32_t s = (int32_t)threadIdx.x; s < a.comm.num_ranks; s += (int32_t)blockDim.x)
        plan.view.rank_counts[s] = counts_from(a, o, s)[plan.shape.num_experts + a.comm.rank];
    if (threadIdx.x == 0) {
        *plan.view.required_rows = required;
        *plan.view.num_rows = plan.shape.drops && required > capacity ? capacity : required;
        plan.view.expert_offsets[plan.shape.num_local] = *plan.view.num_rows;
    }
}

/* Expert-major, where rows are dropped: clips the experts' slabs in the view to the room. */
static __device__ EPX_COLD void clip_experts(const struct epx_route_tokens &a,
                                             const struct offsets &o)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t capacity = o.capacity[a.comm.rank];

    for (int32_t e = (int32_t)threadIdx.x; e < plan.shape.num_local; e += (int32_t)blockDim.x) {
        int64_t offset =
            plan.view.expert_offsets[e] < capacity ? plan.view.expert_offsets[e] : capacity;
        int64_t room = capacity - offset;

        plan.view.expert_offsets[e] = offset;
        plan.view.expert_counts[e] =
            (int32_t)(plan.view.expert_counts[e] < room ? plan.view.expert_counts[e] : room);
    }
}

/* Rank-major, unless rows are dropped: shows the pairs of each expert. */
static __device__ EPX_COLD void count_all_pairs(const struct epx_route_tokens &a,
                                                const struct offsets &o)
{
    for (int32_t e = (int32_t)threadIdx.x; e < a.plan.shape.num_local; e += (int32_t)blockDim.x) {
        int64_t pairs = 0;

        for (int32_t s = 0; s < a.comm.num_ranks; s++)
            pairs += counts_from(a, o, s)[a.plan.shape.first_expert + e];
        a.plan.view.expert_counts[e] = (int32_t)(pairs < INT32_MAX ? pairs : INT32_MAX);
    }
}

/* One block: shows the slabs as grouped matrix products take them, and whether room was short. */
static __device__ void show_groups(const struct epx_route_tokens &a, const struct offsets &o)
{
    const struct epx_plan_view &view = a.plan.view;

    __syncthreads();
    for (int32_t e = (int32_t)threadIdx.x; !a.plan.shape.rank_major && e < a.plan.shape.num_local;
         e += (int32_t)blockDim.x) {
        int64_t end = view.expert_offsets[e + 1];

        view.expert_ends[e] = (int32_t)end;
        view.group_sizes[e] = (int32_t)(end - view.expert_offsets[e]);
    }
    if (threadIdx.x == 0)
        *view.overflow = o.short_rank >= 0;
}

/* One block: what the view shows beside the rows. */
static __device__ void show_counts(const struct epx_route_tokens &a, const struct offsets &o)
{
    bool drops = a.plan.shape.drops && is_short(o, a.comm.rank);

    show_totals(a, o);
    if (a.plan.shape.rank_major && !drops)
        count_all_pairs(a, o);
    if (!a.plan.shape.rank_major && drops)
        clip_experts(a, o);
    show_groups(a, o);
}

/*
 * All blocks of the kernel, where a rank lacks room and nothing is dropped: shows a routing without
 * tokens, so that a user's kernel which was queued behind finds no row that is not there.
 * required_rows says what was needed. The first block has shown the slabs before.
 */
static __device__ EPX_COLD void empty_view(const struct epx_route_tokens &a,
                                           const struct offsets &o)
{
    const struct epx_plan_view &view = a.plan.view;
    int64_t pairs = (int64_t)a.plan.shape.max_tokens * a.plan.shape.top_k;
    int32_t thread = (int32_t)threadIdx.x, threads = (int32_t)blockDim.x;

    for (int64_t p = global_thread(); p < pairs; p += num_global_threads())
        view.slots[p] = -1;
    for (int64_t i = global_thread(); i < o.capacity[a.comm.rank]; i += num_global_threads())
        view.row_tokens[i] = view.row_ranks[i] = -1;
    if (blockIdx.x != 0)
        return;
    for (int32_t e = thread; e <= a.plan.shape.num_local; e += threads) {
        view.expert_offsets[e] = 0;
        if (e < a.plan.shape.num_local)
            view.expert_counts[e] = 0;
    }
    for (int32_t r = thread; r < a.comm.num_ranks; r += threads)
        view.rank_counts[r] = 0;
    if (thread == 0) {
        *view.num_rows = 0;
        *view.required_rows = o.required[a.comm.rank];
    }
    show_groups(a, o);
}

/* Shows the rows kept on ranks with room for all; add_kept_rows adds up those of other ranks. */
static __device__ void show_rows(const struct epx_route_tokens &a, const struct offsets &o)
{
    int32_t me = a.comm.rank, rows = a.plan.shape.num_experts;

    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x) {
        if (!is_short(o, r))
            a.plan.send_rows[r] = counts_from(a, o, me)[rows + r];
        if (!is_short(o, me))
            a.plan.recv_rows[r] = counts_from(a, o, r)[rows + me];
    }
}

/* The whole block: finds all offsets. Every block works out the same ones. */
static __device__ void find_offsets(const struct epx_route_tokens &a,
                                    const struct rank_table &table, struct offsets &o)
{
    int32_t warp = (int32_t)threadIdx.x / EPX_WARP, warps = (int32_t)blockDim.x / EPX_WARP;

    for (int32_t d = warp; d < a.comm.num_ranks; d += warps) {
        int64_t rows = a.plan.shape.rank_major ? offset_rows(a, d, o) : offset_rank(a, table, o, d);

        if (lane_id() == 0)
            o.required[d] = rows;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        o.records[0] = 0;
        for (int32_t s = 0; s < a.comm.num_ranks; s++)
            o.records[s + 1] =
                o.records[s] + counts_from(a, o, s)[a.plan.shape.num_experts + a.comm.rank];
        o.short_rank = -1;
        for (int32_t d = a.comm.num_ranks - 1; d >= 0; d--)
            if (is_short(o, d))
                o.short_rank = d;
    }
    __syncthreads();
}

/* The slot that a pair of this rank would have with endless room. */
static __device__ __forceinline__ int64_t slot_of(const struct epx_device_plan &plan,
                                                  const struct offsets &o,
                                                  const struct epx_device_pair &pair, int32_t rank)
{
    return plan.shape.rank_major ? o.row_base[rank] + pair.row : o.base[pair.expert] + pair.index;
}

/* Expert-major, where room is short: the first slot of a row, given that of its first pair. */
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
        slot = slot < o.capacity[rank] ? slot : -1;
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
        if (slot >= o.capacity[rank]) {
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
    for (int64_t p = (int64_t)a.num_tokens * plan.shape.top_k + global_thread(); p < all;
         p += num_global_threads())
        plan.view.slots[p] = -1;
}

static __device__ __forceinline__ void show_row(const struct epx_device_plan &plan, int64_t slot,
                                                int32_t source, int32_t token)
{
    plan.view.row_tokens[slot] = token;
    plan.view.row_ranks[slot] = source;
}

/* Two pairs of a record: read as they came, and written where the kept ones stay. */
static __device__ __forceinline__ int4 *two_pairs(struct epx_wire_record *record, int32_t i)
{
    return (int4 *)(void *)epx_wire_pairs(record) + i / 2;
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
    for (int32_t i = 0; i < head.z; i += 2) {
        if (i)
            two = *two_pairs(record, i);
        two.x = (int32_t)slot_in_slab(a, o, source, make_int2(two.x, two.y));
        show_row(a.plan, two.x, source, head.x);
        if (i + 1 < head.z) {
            two.z = (int32_t)slot_in_slab(a, o, source, make_int2(two.z, two.w));
            show_row(a.plan, two.z, source, head.x);
        }
        *two_pairs(record, i) = two;
    }
}

/* Expert-major, where room is short: gives slots to the pairs that are kept; returns how many. */
static __device__ EPX_COLD int32_t index_some(const struct epx_route_tokens &a,
                                              const struct offsets &o, int32_t source,
                                              struct epx_wire_record *record, int4 head)
{
    int2 *pairs = (int2 *)(void *)epx_wire_pairs(record);
    int32_t kept = 0;

    for (int32_t i = 0; i < head.z; i++) {
        int2 pair = pairs[i];
        int64_t slot = slot_in_slab(a, o, source, pair);

        if (slot >= o.capacity[a.comm.rank])
            continue;
        pairs[kept++] = make_int2((int32_t)slot, pair.y);
        show_row(a.plan, slot, source, head.x);
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
    for (int32_t i = 0; i < head.z; i++) {
        int2 pair = pairs[i];

        pairs[i].x = (int32_t)slot;
        experts[pair.y & 255] = (int32_t)((uint32_t)pair.y >> 8);
        if (is_short(o, a.comm.rank))
            atomicAdd(&plan.view.expert_counts[(uint32_t)pair.y >> 8], 1);
    }
    return head.z;
}

static __device__ EPX_COLD void clip_record(const struct epx_route_tokens &a, struct offsets &o,
                                            int32_t source, struct epx_wire_record *record,
                                            int32_t kept)
{
    record->num_pairs = kept;
    record->num_slots = a.plan.shape.rank_major ? kept > 0 : kept;
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
    for (int64_t i = global_thread(); i < all; i += num_global_threads()) {
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

/* Marks the rows between the slabs: from behind the pairs of the last source to the slab's end. */
static __device__ EPX_COLD void index_padding(const struct epx_route_tokens &a,
                                              const struct offsets &o)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t capacity = o.capacity[a.comm.rank], most = plan.shape.alignment - 1;
    int32_t last = a.comm.num_ranks - 1;

    for (int64_t i = global_thread(); !plan.shape.rank_major && i < plan.shape.num_local * most;
         i += num_global_threads()) {
        int64_t local = i / most, start = o.from[local * a.comm.num_ranks];
        int64_t end = o.from[local * a.comm.num_ranks + last] +
                      counts_from(a, o, last)[plan.shape.first_expert + local];
        int64_t slot = end + i % most;

        if (slot < start + epx_round_up(end - start, plan.shape.alignment) && slot < capacity)
            plan.view.row_tokens[slot] = plan.view.row_ranks[slot] = -1;
    }
}

/* Adds up, where room is short, the kept rows that each block has counted. */
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
}

#endif
