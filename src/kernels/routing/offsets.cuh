/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offsets.cuh - the middle of a routing: from the whole count matrix every block works out where
 * slabs and sources start and which ranks lack room; one block shows this in the view.
 */
#ifndef EPX_KERNELS_ROUTING_OFFSETS_CUH
#define EPX_KERNELS_ROUTING_OFFSETS_CUH

#include "kernels/routing/pairs.cuh"
#include "kernels/slabs.h"

/* Where slabs and sources start; in shared memory, as is what it points to if that is small. */
struct offsets {
    const int32_t *matrix;
    int64_t *base;                              /* [E] */
    int64_t *from;                              /* [L][R], rank-major [R] */
    int64_t records[EPX_MOST_DEVICE_RANKS + 1]; /* that came from the ranks before each */
    /* where each rank's slabs start if all lay one behind the other; rank-major: the first slot of
     * this rank's rows there */
    int64_t row_base[EPX_MOST_DEVICE_RANKS];
    int64_t required[EPX_MOST_DEVICE_RANKS];
    int64_t capacity[EPX_MOST_DEVICE_RANKS];
    /* rows kept where room is short, as far as this block sees; the matrix tells the others */
    int32_t send_rows[EPX_MOST_DEVICE_RANKS], recv_rows[EPX_MOST_DEVICE_RANKS];
    uint32_t dropped; /* as far as this block sees */
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

/* Where the matrix lies that comes from all ranks. */
static __device__ __forceinline__ int32_t *matrix_in(const struct epx_device_plan &plan,
                                                     const struct epx_device_comm &c)
{
    return (int32_t *)(void *)plan.counts[c.rank];
}

/* The whole block: the matrix is there, seen by all threads. */
static __device__ void take_matrix(const struct epx_route_tokens &a, const int32_t *matrix,
                                   struct offsets &o)
{
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x) {
        o.send_rows[r] = o.recv_rows[r] = 0;
        o.capacity[r] = matrix[(int64_t)(r + 1) * num_counts(a) - 1];
    }
    if (threadIdx.x == 0) {
        o.matrix = matrix;
        o.dropped = 0;
    }
    __syncthreads();
}

/* The whole block: reads the matrix into room; if room is NULL the matrix stays where it is. */
static __device__ void read_matrix(const struct epx_route_tokens &a, int32_t *room,
                                   struct offsets &o)
{
    const int32_t *matrix = matrix_in(a.plan, a.comm);
    int64_t num = (int64_t)a.comm.num_ranks * num_counts(a);

    for (int64_t i = threadIdx.x; room && i < num; i += blockDim.x)
        room[i] = matrix[i];
    __syncthreads();
    take_matrix(a, room ? room : matrix, o);
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
    if (shows_view()) {
        a.plan.view.expert_offsets[local] = start;
        a.plan.view.expert_counts[local] =
            (int32_t)(at - start < INT32_MAX ? at - start : INT32_MAX);
    }
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
        *plan.view.num_rows = epx_used_rows(&plan.shape, required, capacity);
        plan.view.expert_offsets[plan.shape.num_local] = *plan.view.num_rows;
    }
}

/* Unless rank-major, where rows are dropped: clips the experts' slabs in the view to the room. */
static __device__ EPX_COLD void clip_experts(const struct epx_route_tokens &a,
                                             const struct offsets &o)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t capacity = o.capacity[a.comm.rank];

    for (int32_t e = (int32_t)threadIdx.x; e < plan.shape.num_local; e += (int32_t)blockDim.x) {
        int64_t offset =
            plan.view.expert_offsets[e] < capacity ? plan.view.expert_offsets[e] : capacity;
        int64_t room = epx_slab_limit(&plan.shape, e, capacity) - offset;

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

/* One block, where slabs are of fixed size: adds up the rows that came. */
static __device__ EPX_COLD void count_arrived(const struct epx_route_tokens &a)
{
    const struct epx_plan_view &view = a.plan.view;
    uint32_t sum = 0; /* no rank has more rows in such slabs than an int32_t can say */

    if (view.arrived_rows == view.num_rows || threadIdx.x >= EPX_WARP)
        return;
#pragma unroll 4
    for (int32_t e = lane_id(); e < a.plan.shape.num_local; e += EPX_WARP)
        sum += (uint32_t)view.expert_counts[e];
    sum = __reduce_add_sync(~0u, sum);
    if (lane_id() == 0)
        *view.arrived_rows = sum;
}

/* One block: shows the slabs as grouped matrix products take them, and whether room was short; what
 * the user's counts are told of a slab is what the view shows. */
static __device__ void show_groups(const struct epx_route_tokens &a, const struct offsets &o)
{
    const struct epx_plan_view &view = a.plan.view;

    __syncthreads();
    for (int32_t e = (int32_t)threadIdx.x; !a.plan.shape.rank_major && e < a.plan.shape.num_local;
         e += (int32_t)blockDim.x) {
        int64_t end = view.expert_offsets[e + 1];

        view.expert_ends[e] = (int32_t)end;
        view.group_sizes[e] = (int32_t)(end - view.expert_offsets[e]);
        if (a.counts) {
            a.counts[e] = view.expert_counts[e];
            a.counts[a.plan.shape.num_local + 1 + e] = (int32_t)end;
        }
    }
    if (threadIdx.x == 0) {
        if (a.counts)
            a.counts[a.plan.shape.num_local] = 0;
        view.expert_ends[-1] = 0; /* between expert_counts and expert_ends */
        *view.overflow = o.short_rank >= 0;
    }
    count_arrived(a);
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
 * required_rows says what was needed. The block that shows the view has shown the slabs before.
 */
static __device__ EPX_COLD void empty_view(const struct epx_route_tokens &a,
                                           const struct offsets &o)
{
    const struct epx_plan_view &view = a.plan.view;
    int64_t pairs = (int64_t)a.plan.shape.max_tokens * a.plan.shape.top_k;
    int32_t thread = (int32_t)threadIdx.x, threads = (int32_t)blockDim.x;

    for (int64_t p = routing_thread(a); p < pairs; p += num_routing_threads(a))
        view.slots[p] = -1;
    for (int64_t i = routing_thread(a); i < o.capacity[a.comm.rank]; i += num_routing_threads(a))
        view.row_tokens[i] = view.row_ranks[i] = -1;
    for (int64_t i = routing_thread(a); !a.plan.shape.rank_major && i < o.capacity[a.comm.rank];
         i += num_routing_threads(a))
        view.row_choices[i] = -1;
    if (!shows_view())
        return;
    for (int32_t e = thread; e <= a.plan.shape.num_local; e += threads) {
        view.expert_offsets[e] = e * epx_slab_rows(&a.plan.shape, 0);
        if (e < a.plan.shape.num_local)
            view.expert_counts[e] = 0;
    }
    for (int32_t r = thread; r < a.comm.num_ranks; r += threads)
        view.rank_counts[r] = 0;
    if (thread == 0) {
        *view.num_rows = epx_used_rows(&a.plan.shape, 0, o.capacity[a.comm.rank]);
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

/* The whole block: the sum over the threads up to this one; `sums` is shared, one for each warp. No
 * number of rows, of at most EPX_MOST_DEVICE_EXPERTS slabs, is too large. */
static __device__ int64_t scan_block(int64_t value, int64_t *sums)
{
    const int32_t warp = (int32_t)threadIdx.x / EPX_WARP, warps = (int32_t)blockDim.x / EPX_WARP;
    int64_t through = scan_lanes(value);

    if (lane_id() == EPX_WARP - 1)
        sums[warp] = through;
    __syncthreads();
    if (warp == 0) {
        int64_t sum = scan_lanes(lane_id() < warps ? sums[lane_id()] : 0);

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
        int32_t rank = rank_of(a.plan, table, e),
                num = table.first_expert[rank + 1] - table.first_expert[rank];
        int64_t pairs = pairs_from(a, o, e, a.comm.num_ranks);

        atomicMax((unsigned long long *)&o.required[rank],
                  (unsigned long long)epx_required_rows(&a.plan.shape, num, 0, pairs));
    }
}

/* Where an expert's slab lies, whose start is given as if the slabs of all ranks lay one behind the
 * other: in its rank, where pairs of this rank start; here also those of each source. */
static __device__ void place_expert(const struct epx_route_tokens &a, const struct offsets &o,
                                    int32_t expert, int32_t rank, int64_t start)
{
    start -= o.row_base[rank];
    o.base[expert] = start + pairs_from(a, o, expert, a.comm.rank);
    if (rank == a.comm.rank)
        place_local_expert(a, o, expert, start);
}

/*
 * The whole block, expert-major: places all slabs, and finds what each rank needs. What is written
 * to o.base and o.from is final, as it is memory of all blocks if it is too much for a block's own.
 */
static __device__ void place_slabs(const struct epx_route_tokens &a, const struct rank_table &table,
                                   struct offsets &o)
{
    __shared__ int64_t sums[EPX_WARP];
    const int32_t experts = a.plan.shape.num_experts;
    int64_t end = 0;

    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x)
        o.required[r] = 0;
    for (int32_t first = 0; first < experts; first += (int32_t)blockDim.x) {
        int32_t expert = first + (int32_t)threadIdx.x;
        bool is = expert < experts;
        int32_t rank = is ? rank_of(a.plan, table, expert) : -1;
        int64_t slab =
            epx_slab_rows(&a.plan.shape, is ? pairs_from(a, o, expert, a.comm.num_ranks) : 0);
        int64_t through = end + scan_block(slab, sums);

        if (is && expert == table.first_expert[rank])
            o.row_base[rank] = through - slab;
        end += sums[blockDim.x / EPX_WARP - 1];
        __syncthreads();
        if (is)
            place_expert(a, o, expert, rank, through - slab);
        if (is && expert == table.first_expert[rank + 1] - 1)
            o.required[rank] = through - o.row_base[rank];
    }
    if (a.plan.shape.rows_per_expert)
        need_fullest(a, table, o);
}

/* The rank whose need this thread looks at, if that lacks room; -1 = none does. */
static __device__ __forceinline__ int32_t short_rank_here(const struct epx_route_tokens &a,
                                                          const struct offsets &o)
{
    const int32_t r = (int32_t)threadIdx.x;

    return r < a.comm.num_ranks && is_short(o, r) ? r : -1;
}

/* The whole block: notes the first of the ranks that threads have found to lack room. What each
 * thread wrote before is there. */
static __device__ void find_short_rank(struct offsets &o, int32_t found)
{
    if (threadIdx.x == 0)
        o.short_rank = -1;
    if (!__syncthreads_or(found >= 0))
        return;
    if (found >= 0)
        atomicMin((uint32_t *)&o.short_rank, (uint32_t)found); /* -1 is the largest */
    __syncthreads();
}

/* The whole block: finds all offsets. Every block works out the same ones. */
static __device__ void find_offsets(const struct epx_route_tokens &a,
                                    const struct rank_table &table, struct offsets &o)
{
    if (a.plan.shape.rank_major)
        for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x)
            o.required[r] = offset_rows(a, r, o);
    else
        place_slabs(a, table, o);
    __syncthreads();
    find_short_rank(o, short_rank_here(a, o));
}

/* One thread: how many records came from the ranks before each. */
static __device__ void count_records(const struct epx_route_tokens &a, struct offsets &o)
{
    o.records[0] = 0;
    for (int32_t s = 0; s < a.comm.num_ranks; s++)
        o.records[s + 1] =
            o.records[s] + counts_from(a, o, s)[a.plan.shape.num_experts + a.comm.rank];
}

#endif
