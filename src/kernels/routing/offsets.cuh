/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offsets.cuh - the middle of a routing: from the whole count matrix every block works out where
 * slabs and sources start and which ranks lack room; the first block shows this in the view.
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
    if (routing_block(a) == 0) {
        a.plan.view.expert_offsets[local] = start;
        a.plan.view.expert_counts[local] =
            (int32_t)(at - start < INT32_MAX ? at - start : INT32_MAX);
    }
}

/* Where slabs are of fixed size: the most pairs of an expert, given those that each lane saw. */
static __device__ int64_t most_of_lanes(const struct epx_plan_shape &shape, int64_t most)
{
    for (int32_t d = EPX_WARP / 2; shape.rows_per_expert && d; d /= 2) {
        int64_t other = __shfl_xor_sync(~0u, most, d);

        most = other > most ? other : most;
    }
    return most;
}

/* One warp: the slabs of one rank, by expert; returns the rows that the rank needs. */
static __device__ int64_t offset_rank(const struct epx_route_tokens &a,
                                      const struct rank_table &table, const struct offsets &o,
                                      int32_t rank)
{
    int32_t first = table.first_expert[rank], end = table.first_expert[rank + 1];
    int64_t start = 0, most = 0;

    for (int32_t at = first; at < end; at += EPX_WARP) {
        int32_t expert = at + lane_id();
        int64_t total = 0, before = 0, slab, through;

        for (int32_t s = 0; expert < end && s < a.comm.num_ranks; s++) {
            int32_t pairs = counts_from(a, o, s)[expert];

            before += s < a.comm.rank ? pairs : 0;
            total += pairs;
        }
        most = total > most ? total : most;
        slab = epx_slab_rows(&a.plan.shape, total);
        through = inclusive_scan(slab);
        if (expert < end) {
            o.base[expert] = start + through - slab + before;
            if (rank == a.comm.rank)
                place_local_expert(a, o, expert, start + through - slab);
        }
        start += __shfl_sync(~0u, through, EPX_WARP - 1);
    }
    return epx_required_rows(&a.plan.shape, end - first, start, most_of_lanes(a.plan.shape, most));
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
static __device__ void count_arrived(const struct epx_route_tokens &a)
{
    const struct epx_plan_view &view = a.plan.view;
    int64_t sum = 0;

    if (view.arrived_rows == view.num_rows || threadIdx.x >= EPX_WARP)
        return;
    for (int32_t e = lane_id(); e < a.plan.shape.num_local; e += EPX_WARP)
        sum += view.expert_counts[e];
    sum = inclusive_scan(sum);
    if (lane_id() == EPX_WARP - 1)
        *view.arrived_rows = sum;
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
    if (threadIdx.x == 0) {
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
 * required_rows says what was needed. The first block has shown the slabs before.
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
    if (routing_block(a) != 0)
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

#endif
