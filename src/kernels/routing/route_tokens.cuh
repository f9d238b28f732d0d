/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_tokens.cuh - a whole routing in one launch and two hops. Warps count their tokens' pairs
 * and rows; the sums over all warps go to all ranks (block_counts.cuh). Then every rank has the
 * whole count matrix, and each pair is numbered once, with its slot; records tell the ranks of
 * their rows (placed_pairs.cuh), which show them in the view.
 * Work: max_tokens * top_k + records here + ranks * experts in every block. Reads ids; writes the
 * plan. Order: (token, choice), whatever the number of blocks.
 * Launch: comm.blocks blocks, or halves of them (routing_steps.cuh), which wait for each other's
 * counts and for other ranks twice.
 */
#ifndef EPX_KERNELS_ROUTING_ROUTE_TOKENS_CUH
#define EPX_KERNELS_ROUTING_ROUTE_TOKENS_CUH

#include "kernels/protocol/launches.cuh"
#include "kernels/routing/block_counts.cuh"
#include "kernels/routing/placed_pairs.cuh"

/* The counters of a block, and what a warp does first. */
struct first_step {
    int32_t warps, *counts; /* of the block */
    struct chunk chunk;
    struct lanes lanes;
    int64_t id;
};

static __device__ struct first_step first_step_of(const struct epx_route_tokens &a, int32_t warps,
                                                  int32_t *counts)
{
    struct first_step first;

    first.warps = warps;
    first.counts = counts;
    first.chunk = chunk_of(a, first.warps, counts);
    first.lanes = lanes_of(a.plan.shape.top_k);
    first.id = first_id(a, first.chunk, first.lanes);
    return first;
}

/* Once warps have counted this rank's pairs: waits until this rank has the matrix, if the ranks
 * agree. */
static __device__ bool exchange_counts(const struct epx_route_tokens &a, struct exchange &x,
                                       const struct first_step &first,
                                       const struct block_counters &counters, int32_t *matrix)
{
    bool ok;

    __syncthreads();
    tell_blocks(a, x.epoch, first.warps, first.counts, counters.own);
    scan_counters(a, first.warps, first.counts);
    ok = add_up_blocks(a, x.epoch);
    return await_ready(a.comm, a.note, x, NULL, ok) &&
           receive_counts(a, x, matrix, counters.before);
}

/* The rest of a routing, once its pairs are placed; staged: records are still in shared memory. */
static __device__ void exchange_records(const struct placing &p, struct exchange &x,
                                        const struct block_counters &counters, bool staged)
{
    if (staged)
        send_lists(p.a, p.table, counters, p.lists);
    signal_arrival(p.a.comm);
    show_offsets(p.a, p.o);
    if (!await_arrivals(p.a.comm, x, 1))
        return;
    take_records(p.a, p.o);
    add_kept_rows(p.a, p.o);
}

/* A routing whose exchange has begun. Returns whether records were exchanged. */
static __device__ bool route(const struct epx_route_tokens &a, struct exchange &x,
                             const struct rank_table &table, struct offsets &o,
                             const struct room &room, const struct first_step &first)
{
    __shared__ struct record_lists lists;
    int32_t *matrix = room.matrix ? room.matrix : matrix_in(a.plan, a.comm);
    const struct block_counters counters = counters_behind(a, first.warps, first.counts);
    const struct placing p = {a,          table, o, lists, {first.chunk.counts, counters.before},
                              first.lanes};
    int32_t expert;

    if (blockIdx.x == 0)
        zero_sums(a);
    count_chunk(a, table, first.chunk, first.lanes, first.id);
    expert = load_expert(a.plan, position_of(first.lanes, a.plan.shape.top_k, first.chunk, 0));
    if (!exchange_counts(a, x, first, counters, matrix))
        return false;
    place_lists(a, table, counters, room.lists, lists);
    take_matrix(a, matrix, o);
    if (!find_room(a, x, table, o))
        return false;
    place_chunk(p, first.chunk, expert);
    exchange_records(p, x, counters, room.lists != NULL);
    return true;
}

template <int THREADS>
static __global__ void __launch_bounds__(THREADS, ROUTING_THREADS / THREADS)
    route_tokens(const __grid_constant__ struct epx_route_tokens a, struct shared_parts parts)
{
    extern __shared__ __align__(16) int64_t shared[];
    __shared__ struct exchange x;
    __shared__ struct rank_table table;
    __shared__ struct offsets o;
    struct room room = divide_room(shared, parts);
    const int32_t warps = parts.warps ? parts.warps : 1;
    int32_t *counts = counters_of(a, parts, room.words);
    struct first_step first;
    bool exchanged = false, failed;

    if (!parts.warps) /* the counters are in the plan, and the routing before may still use them */
        await_kernel_before();
    look_up(a, room.owner, table);
    zero_counts(a, warps, counts);
    if (threadIdx.x == 0)
        place_offsets(a, shared, parts, o);
    await_kernel_before();
    first = first_step_of(a, warps, counts);
    begin_exchange(a.comm, a.note, 0, look_first(a.comm), x);
    if (x.outcome.code == EPX_SUCCESS)
        exchanged = route(a, x, table, o, room, first);
    if (is_last_block(a.comm, &x, failed) && threadIdx.x == 0) {
        note_failure(a.comm, x, failed);
        end_routing(a, x, exchanged, a.plan.bad[0] || *a.plan.dropped);
    }
}

template <int THREADS>
static int launch_routing(const struct epx_route_tokens &args, EPX_Stream stream)
{
    struct shared_parts parts = parts_of(&args, THREADS / EPX_WARP);

    return launch_behind(
        {(unsigned)args.comm.blocks, THREADS, (unsigned)bytes_of_parts(parts), stream},
        route_tokens<THREADS>, args, parts);
}

#endif
