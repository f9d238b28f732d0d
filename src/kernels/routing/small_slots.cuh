/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_slots.cuh - the plan and the view of a routing of few pairs, given all ids in shared memory
 * (small_ids.cuh), counted (small_numbers.cuh): a warp a token of this rank, and one a row that
 * comes here.
 * Work: this rank's pairs, and those that come here. Order: (source, token, choice).
 */
#ifndef EPX_KERNELS_ROUTING_SMALL_SLOTS_CUH
#define EPX_KERNELS_ROUTING_SMALL_SLOTS_CUH

#include "kernels/routing/routing_steps.cuh"
#include "kernels/routing/slots.cuh"
#include "kernels/routing/small_numbers.cuh"
#include "kernels/wires/banks.cuh"

/* What a lane knows of its pair, one of a token's. */
struct small_pair {
    int32_t expert, rank; /* -1 = none */
    int32_t index, row;
    int64_t slot; /* -1 = there is no room */
};

/* The lane's pair of a token of a source; its rank stays -1. */
static __device__ struct small_pair load_small_pair(const struct epx_route_tokens &a,
                                                    const struct small_routing &s, int32_t source,
                                                    int32_t token)
{
    struct small_pair pair = {-1, -1, 0, 0, -1};
    const int32_t top_k = a.plan.shape.top_k;

    if (lane_id() < top_k)
        pair.expert = s.ids[source * s.stride + token * top_k + lane_id()];
    if (pair.expert >= 0)
        pair.index = number_of_pair(a, s, source, token, lane_id(), pair.expert);
    return pair;
}

/* The whole warp: this lane's pair of a token of this rank. */
static __device__ struct small_pair own_pair(const struct epx_route_tokens &a,
                                             const struct small_routing &s, int32_t token)
{
    struct small_pair pair = load_small_pair(a, s, a.comm.rank, token);

    if (pair.expert < 0)
        return pair;
    pair.rank = s.table.owner[pair.expert];
    pair.row = number_of_row(a, s, a.comm.rank, token, pair.rank);
    pair.slot = a.plan.shape.rank_major ? s.o.row_base[pair.rank] + pair.row
                                        : s.o.base[pair.expert] + pair.index;
    if (pair.slot >= limit_of(a.plan, s.table, s.o, pair.expert, pair.rank))
        pair.slot = -1;
    return pair;
}

static __device__ __forceinline__ int32_t ranks_below(uint64_t mask, int32_t rank)
{
    return __popcll((unsigned long long)(mask & ((1ULL << rank) - 1)));
}

/* Where room is short: counts, by the only block that works then, what was kept and what was not.
 */
static __device__ EPX_COLD void count_kept(const struct epx_route_tokens &a,
                                           const struct small_routing &s,
                                           const struct small_pair &pair, bool leads, bool row_kept)
{
    if (pair.rank < 0)
        return;
    if (pair.slot < 0 && (!a.plan.shape.rank_major || leads))
        atomicAdd((unsigned long long *)a.plan.dropped, 1ULL);
    if (leads && row_kept && is_short(s.o, pair.rank))
        atomicAdd(&a.plan.send_rows[pair.rank], 1);
}

/* Home side: the whole warp notes where the pairs and rows of a token go. */
static __device__ void place_token(const struct epx_route_tokens &a, const struct small_routing &s,
                                   int32_t token)
{
    const struct epx_device_plan &plan = a.plan;
    const uint64_t mask = s.mask[a.comm.rank * plan.shape.max_tokens + token];
    struct small_pair pair = own_pair(a, s, token);
    uint32_t same = __match_any_sync(~0u, pair.rank);
    uint32_t kept = same & __ballot_sync(~0u, pair.slot >= 0);
    int32_t lead = __ffs((int32_t)same) - 1, place = 0;
    int32_t slot = __shfl_sync(~0u, (int32_t)pair.slot, kept ? __ffs((int32_t)kept) - 1 : 0);
    int64_t at = (int64_t)token * plan.shape.top_k + lane_id();

    if (lane_id() == 0)
        plan.token_num[token] = __popcll((unsigned long long)mask);
    if (s.o.short_rank >= 0)
        count_kept(a, s, pair, lead == lane_id(), kept != 0);
    if (lane_id() >= plan.shape.top_k)
        return;
    if (pair.rank >= 0)
        place = ranks_below(mask, pair.rank);
    store_pair(plan, at, {pair.expert, pair.index, pair.row, lead << 8 | place});
    plan.view.slots[at] = (int32_t)pair.slot;
    plan.pair_rank[at] = pair.slot >= 0 ? pair.rank : -1;
    if (pair.rank < 0 || lead != lane_id())
        return;
    plan.token_rank[(int64_t)token * plan.most_rows + place] = pair.rank;
    plan.token_slot[(int64_t)token * plan.most_rows + place] = kept ? slot : -1;
}

/* The whole warp: this lane's pair, if it comes here, of a row of a source. The row is numbered if
 * `with_row`, or its slot follows from that. */
static __device__ __forceinline__ struct small_pair coming_pair(const struct epx_route_tokens &a,
                                                                const struct small_routing &s,
                                                                int32_t source, int32_t token,
                                                                bool with_row)
{
    const int32_t me = a.comm.rank;
    struct small_pair pair = load_small_pair(a, s, source, token);

    if (with_row || a.plan.shape.rank_major)
        pair.row = number_of_row(a, s, source, token, me);
    if (pair.expert < 0 || s.owner[pair.expert] != me)
        return pair;
    pair.rank = me;
    pair.slot =
        a.plan.shape.rank_major
            ? s.o.from[source] + pair.row
            : s.o.from[(pair.expert - a.plan.shape.first_expert) * a.comm.num_ranks + source] +
                  pair.index;
    if (pair.slot >= limit_of(a.plan, s.table, s.o, pair.expert, me))
        pair.slot = -1;
    return pair;
}

/* Rank-major: shows a row once, and its experts, by the lanes of all choices. */
static __device__ void show_rank_major(const struct epx_route_tokens &a, int32_t source,
                                       int32_t token, int64_t slot, int32_t local, bool is_first)
{
    const struct epx_device_plan &plan = a.plan;

    if (is_first)
        show_row(plan, slot, source, token);
    if (lane_id() < plan.shape.top_k)
        plan.view.row_expert_ids[slot * plan.shape.top_k + lane_id()] = local;
}

/* Where room is short: counts, by the only block that works then, the kept row and its pairs. */
static __device__ EPX_COLD void count_row(const struct epx_route_tokens &a,
                                          const struct small_routing &s, int32_t source,
                                          int32_t local, uint32_t kept)
{
    if (!is_short(s.o, a.comm.rank))
        return;
    if (a.plan.shape.rank_major && kept >> lane_id() & 1)
        atomicAdd(&a.plan.view.expert_counts[local], 1);
    if (lane_id() == 0 && kept)
        atomicAdd(&a.plan.recv_rows[source], 1);
}

/* Expert side: the whole warp makes the record of a row that comes here, and shows its slots. */
static __device__ void place_row(const struct epx_route_tokens &a, const struct small_routing &s,
                                 int32_t source, int32_t token)
{
    const struct epx_device_plan &plan = a.plan;
    const int32_t me = a.comm.rank;
    const struct small_pair pair = coming_pair(a, s, source, token, true);
    struct epx_wire_record *record = epx_wire_record_at(&plan, plan.records[me], source, pair.row);
    int32_t local = pair.rank == me ? pair.expert - s.table.first_expert[me] : -1;
    uint32_t kept = __ballot_sync(~0u, pair.slot >= 0);
    int32_t num = __popc(kept), first = kept ? __ffs((int32_t)kept) - 1 : 0;
    int32_t slot = __shfl_sync(~0u, (int32_t)pair.slot, first);

    if (lane_id() == 0)
        store_head(record, token, EPX_PAIRS_BEHIND,
                   ranks_below(s.mask[source * plan.shape.max_tokens + token], me), num,
                   plan.shape.rank_major ? num > 0 : num);
    if (pair.slot >= 0)
        *(int2 *)(void *)&epx_wire_pairs_at(record,
                                            EPX_PAIRS_BEHIND)[__popc(kept & lanes_below())] =
            make_int2((int32_t)pair.slot, (int32_t)((uint32_t)local << 8 | (uint32_t)lane_id()));
    if (s.o.short_rank >= 0)
        count_row(a, s, source, local, kept);
    if (plan.shape.rank_major && kept)
        show_rank_major(a, source, token, slot, local, lane_id() == first);
    else if (pair.slot >= 0)
        show_pair_row(plan, pair.slot, source, token, lane_id());
}

/* Zeroes what the only block that works adds to where room is short. */
static __device__ EPX_COLD void zero_kept(const struct epx_route_tokens &a,
                                          const struct small_routing &s)
{
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x) {
        if (is_short(s.o, r))
            a.plan.send_rows[r] = 0;
        if (is_short(s.o, a.comm.rank))
            a.plan.recv_rows[r] = 0;
    }
    for (int32_t e = (int32_t)threadIdx.x;
         a.plan.shape.rank_major && is_short(s.o, a.comm.rank) && e < a.plan.shape.num_local;
         e += (int32_t)blockDim.x)
        a.plan.view.expert_counts[e] = 0;
}

/* One block: what the view and the plan say beside pairs and rows. */
static __device__ void show_all(const struct epx_route_tokens &a, const struct small_routing &s)
{
    show_counts(a, s.o);
    show_rows(a, s.o);
    if (threadIdx.x == 0)
        *a.plan.dropped = 0;
    __syncthreads();
    if (s.o.short_rank >= 0)
        zero_kept(a, s);
    __syncthreads();
}

/* So much of the crew's work: its warps take turns from another one on, so that no warp has the
 * first piece of several kinds of work. */
static __device__ __forceinline__ struct crew turned(struct crew crew, int32_t quarters)
{
    int32_t warp = crew.warp + crew.num / 4 * quarters;

    return {warp < crew.num ? warp : warp - crew.num, crew.num};
}

/* The warps that place tokens and rows: all, or where room is short those of the block that shows
 * the view. */
static __device__ struct crew placing_crew(const struct epx_route_tokens &a,
                                           const struct small_routing &s, int32_t quarters)
{
    int32_t warps = (int32_t)blockDim.x / EPX_WARP, warp = (int32_t)threadIdx.x / EPX_WARP;

    if (s.o.short_rank < 0)
        return turned(crew_of(a.banks), quarters);
    return {shows_view() ? warp : INT32_MAX / 2, warps};
}

static __device__ void place_all(const struct epx_route_tokens &a, const struct small_routing &s)
{
    const int32_t tokens = a.plan.shape.max_tokens, me = a.comm.rank;
    const struct crew rows = placing_crew(a, s, 1), own = placing_crew(a, s, 2);
    const int32_t all = tokens * a.plan.shape.top_k;

    for (int32_t t = own.warp; t < a.num_tokens; t += own.num)
        place_token(a, s, t);
    for (int32_t i = rows.warp; i < a.comm.num_ranks * tokens; i += rows.num)
        if (s.mask[i] >> me & 1)
            place_row(a, s, i / tokens, i % tokens);
    for (int32_t p = a.num_tokens * a.plan.shape.top_k + (int32_t)routing_thread(a); p < all;
         p += (int32_t)num_routing_threads(a))
        a.plan.view.slots[p] = -1;
    if (epx_most_padding(&a.plan.shape))
        index_padding(a, s.o, turned(crew_of(a.banks), 3));
}

/* The sum over the threads of the block up to this one, and of all; it may wrap. */
struct block_sums {
    uint32_t through, all;
};

/* The whole block, once; `warp_sums` is shared. */
static __device__ struct block_sums sum_threads(uint32_t value, uint32_t *warp_sums)
{
    const int32_t warp = (int32_t)threadIdx.x / EPX_WARP, warps = (int32_t)blockDim.x / EPX_WARP;
    uint32_t through = scan_lanes(value), sum;

    if (lane_id() == EPX_WARP - 1)
        warp_sums[warp] = through;
    __syncthreads();
    sum = lane_id() < warps ? warp_sums[lane_id()] : 0;
    return {through + __reduce_add_sync(~0u, lane_id() < warp ? sum : 0),
            __reduce_add_sync(~0u, sum)};
}

/* Where the pairs of each source start in the slab of an expert that is here; shows the slab. */
static __device__ void place_small_slab(const struct epx_route_tokens &a,
                                        const struct small_routing &s, int32_t expert,
                                        uint32_t start)
{
    const int32_t ranks = a.comm.num_ranks, local = expert - a.plan.shape.first_expert;
    const int32_t *count = s.matrix + expert;
    int64_t *from = s.o.from + local * ranks;
    uint32_t at = start;

#pragma unroll 1
    for (int32_t source = 0; source < ranks; source++, count += num_counts(a)) {
        from[source] = at;
        at += (uint32_t)*count;
    }
    if (shows_view()) {
        a.plan.view.expert_offsets[local] = start;
        a.plan.view.expert_counts[local] = (int32_t)(at - start);
    }
}

/* The pairs of an expert from the sources before this rank, and from all. */
static __device__ __forceinline__ uint2 small_pairs(const struct epx_route_tokens &a,
                                                    const struct small_routing &s, int32_t expert)
{
    const int32_t *count = s.matrix + expert;
    uint2 pairs = {0, 0};

#pragma unroll 1
    for (int32_t source = 0; source < a.comm.num_ranks; source++, count += num_counts(a)) {
        pairs.x += source < a.comm.rank ? (uint32_t)*count : 0;
        pairs.y += (uint32_t)*count;
    }
    return pairs;
}

/*
 * The whole block, where slabs are as long as their pairs make them: as place_slabs, by sums of 32
 * bits. Slabs are placed as if those of all ranks lay one behind the other, where sums may wrap;
 * what counts is the distance from the first slab of the rank, which no routing of few pairs makes
 * too long. Returns a rank that this thread found to lack room, -1 = none.
 */
static __device__ int32_t place_small_slabs(const struct epx_route_tokens &a,
                                            struct small_routing &s)
{
    __shared__ uint32_t sums[EPX_WARP];
    const int32_t experts = a.plan.shape.num_experts;
    uint32_t before = 0;
    int32_t found = -1;

#pragma unroll 1
    for (int32_t first = 0; first < experts; first += (int32_t)blockDim.x) {
        const int32_t expert = first + (int32_t)threadIdx.x;
        const bool is = expert < experts;
        const uint2 pairs = is ? small_pairs(a, s, expert) : make_uint2(0, 0);
        const int32_t rank = is ? s.owner[expert] : 0;
        uint32_t slab = is ? (uint32_t)epx_slab_rows(&a.plan.shape, (int32_t)pairs.y) : 0;
        struct block_sums sum = sum_threads(slab, sums);
        uint32_t end = before + sum.through;

        if (is && expert == s.table.first_expert[rank])
            s.o.row_base[rank] = end - slab;
        before += sum.all;
        __syncthreads();
        if (!is)
            continue;
        end -= (uint32_t)s.o.row_base[rank];
        if (expert == s.table.first_expert[rank + 1] - 1) {
            s.o.required[rank] = end;
            found = found < 0 && is_short(s.o, rank) ? rank : found;
        }
        s.o.base[expert] = end - slab + pairs.x;
        if (rank == a.comm.rank)
            place_small_slab(a, s, expert, end - slab);
    }
    return found;
}

/* The whole warp: each rank's fullest expert has at least as many pairs as the lanes' experts of
 * that rank; rank -1 = the lane has no expert. In most warps all are of one rank. */
static __device__ __forceinline__ void note_fullest(struct small_routing &s, int32_t rank,
                                                    uint32_t pairs)
{
    const int32_t first = __shfl_sync(~0u, rank, 0);

    if (__all_sync(~0u, rank == first || rank < 0)) {
        pairs = __reduce_max_sync(~0u, pairs);
        rank = lane_id() ? -1 : rank;
    }
    if (rank >= 0)
        atomicMax(&s.fullest[rank], pairs);
}

/* The whole block, where slabs are of fixed size: as place_small_slabs. Where a slab lies follows
 * from its number. */
static __device__ int32_t place_fixed_slabs(const struct epx_route_tokens &a,
                                            struct small_routing &s)
{
    const int32_t experts = a.plan.shape.num_experts, r = (int32_t)threadIdx.x;

#pragma unroll 1
    for (int32_t first = 0; first < experts; first += (int32_t)blockDim.x) {
        const int32_t expert = first + (int32_t)threadIdx.x;
        const bool is = expert < experts;
        const uint2 pairs = is ? small_pairs(a, s, expert) : make_uint2(0, 0);
        const int32_t rank = is ? s.owner[expert] : -1;

        note_fullest(s, rank, pairs.y);
        if (!is)
            continue;
        const int64_t start =
            (expert - s.table.first_expert[rank]) * epx_slab_rows(&a.plan.shape, 0);

        s.o.base[expert] = start + pairs.x;
        if (rank == a.comm.rank)
            place_small_slab(a, s, expert, (uint32_t)start);
    }
    __syncthreads();
    if (r < a.comm.num_ranks)
        s.o.required[r] = epx_required_rows(
            &a.plan.shape, s.table.first_expert[r + 1] - s.table.first_expert[r], 0, s.fullest[r]);
    return short_rank_here(a, s.o);
}

/* Rank-major: as place_small_slabs. */
static __device__ int32_t place_small_rows(const struct epx_route_tokens &a,
                                           struct small_routing &s)
{
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x)
        s.o.required[r] = offset_rows(a, r, s.o);
    return short_rank_here(a, s.o);
}

/* The whole block, once it has all ids: finds all offsets. False if there is no room; the view is
 * that of no tokens then. */
static __device__ bool find_small_offsets(const struct epx_route_tokens &a, struct exchange &x,
                                          struct small_routing &s)
{
    int32_t found;

    find_all_ranks(a, s);
    if (a.plan.shape.rank_major) {
        __syncthreads();
        found = place_small_rows(a, s);
    } else {
        found = a.plan.shape.rows_per_expert ? place_fixed_slabs(a, s) : place_small_slabs(a, s);
    }
    find_short_rank(s.o, found);
    if (s.o.short_rank < 0)
        return true;
    if (threadIdx.x == 0)
        x.remarks = 1;
    if (a.plan.shape.drops)
        return true;
    empty_view(a, s.o);
    if (threadIdx.x == 0)
        x.outcome = outcome_short(a, s.table, s.o);
    return false;
}

/* All blocks that route: the plan and the view. */
static __device__ void find_small_slots(const struct epx_route_tokens &a,
                                        const struct small_routing &s)
{
    if (shows_view())
        show_all(a, s);
    place_all(a, s);
}

#endif
