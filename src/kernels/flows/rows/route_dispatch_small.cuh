/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_dispatch_small.cuh - EPX_Route_dispatch of few rows in one launch and one hop: rows go into
 * the banks of the ranks that own their experts, by this rank's ids alone, while the ids of all
 * ranks travel beside them; from all ids every block that takes rows knows their slots.
 * Work: that of route_small and dispatch_small; a slice of a row numbers the row's pairs again,
 * which is less than to wait for another block. Order: (source, token, choice).
 * Launch: phases.cuh; blocks that tell ids and store, then blocks that route and take. These wait
 * for nothing that others of them do, so they need not all run at once. A kernel of one phase is,
 * for the routing, without senders.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_ROUTE_DISPATCH_SMALL_CUH
#define EPX_KERNELS_FLOWS_ROWS_ROUTE_DISPATCH_SMALL_CUH

#include "kernels/args/route_dispatch_args.h"
#include "kernels/flows/rows/padding.cuh"
#include "kernels/flows/rows/small_rows.cuh"
#include "kernels/routing/small_ids.cuh"
#include "kernels/routing/small_slots.cuh"
#include "kernels/wires/slice_flags.cuh"

/* The whole warp: the ranks that a token of this rank goes to, a bit each. */
static __device__ uint64_t ranks_of_token(const struct epx_route_tokens &a, int64_t token)
{
    const int32_t top_k = a.plan.shape.top_k;
    int32_t expert = -1;
    uint64_t rank = 0;
    bool is_bad;

    if (lane_id() < top_k)
        expert = told_id(a, (int32_t)token * top_k + lane_id(), is_bad);
    if (expert >= 0)
        rank = 1ULL << a.plan.owner[expert];
    return (uint64_t)__reduce_or_sync(~0u, (uint32_t)(rank >> 32)) << 32 |
           __reduce_or_sync(~0u, (uint32_t)rank);
}

/* Stores this rank's rows, also those that a short capacity has no slot for: nobody takes them. */
template <bool LIST>
static __device__ void store_by_ids(const struct epx_route_dispatch &a, uint64_t epoch,
                                    struct row_list &list)
{
    send_slices<struct flag_wire, LIST>(a.rows, epoch, list, [&](int64_t token, auto each) {
        uint64_t ranks = ranks_of_token(a.routing, token) & ~(1ULL << a.rows.comm.rank);

        for (int32_t rank = lane_id(); ranks; ranks >>= EPX_WARP, rank += EPX_WARP)
            each(ranks >> lane_id() & 1 ? bank_on(a.rows.comm, a.rows.banks, epoch, rank) : NULL);
    });
}

/* The whole warp: lists the slots of a row, of which each lane has its pair's; returns how many. */
static __device__ int32_t list_own_slots(const struct epx_dispatch_rows &a, int64_t slot,
                                         int64_t offset, struct row_list &list)
{
    uint32_t kept = __ballot_sync(~0u, slot >= 0), below = kept & lanes_below();

    if (a.plan.shape.rank_major)
        kept &= -kept;
    if (kept >> lane_id() & 1)
        list.row[__popc(below)] = a.recv + slot * a.row_bytes + offset;
    __syncwarp();
    return __popc(kept);
}

/* The whole warp: weights are those of the token's K choices, a lane each. */
static __device__ void spread_own_weights(const struct epx_dispatch_rows &a, const float *weights,
                                          int64_t slot)
{
    const int32_t top_k = a.plan.shape.top_k;
    uint32_t kept = __ballot_sync(~0u, slot >= 0);
    int32_t first = __shfl_sync(~0u, (int32_t)slot, kept ? __ffs((int32_t)kept) - 1 : 0);

    if (a.plan.shape.rank_major && kept && lane_id() < top_k)
        a.recv_weights[(int64_t)first * top_k + lane_id()] = slot >= 0 ? weights[lane_id()] : 0;
    else if (!a.plan.shape.rank_major && slot >= 0)
        a.recv_weights[slot] = weights[lane_id()];
}

/* The whole warp: the slot that each lane stores to, given that of its pair; -1 = none. */
static __device__ __forceinline__ int64_t slot_of_small_row(const struct epx_dispatch_rows &a,
                                                            int64_t slot)
{
    uint32_t kept = __ballot_sync(~0u, slot >= 0);

    return a.plan.shape.rank_major && (kept & lanes_below()) ? -1 : slot;
}

/* The whole warp: one slice of a row that comes here; returns whether it came. */
template <bool LIST>
static __device__ bool take_slice(const struct epx_route_dispatch &a, const struct exchange &x,
                                  const struct small_routing &s, char *bank,
                                  const struct row_slice &at, struct row_list &list)
{
    const struct part part = part_of_slice<LIST>(a.rows, at.slice);
    int64_t slot = coming_pair(a.routing, s, at.source, at.token, false).slot;
    int32_t num =
        LIST ? __any_sync(~0u, slot >= 0) : list_own_slots(a.rows, slot, part.offset, list);

    if (num == 0)
        return true;
    const struct coming_slice from = slice_from(a.rows, flag_wire::stamp_of(x.epoch), bank, at);

    if (!spread_slice<struct flag_wire, LIST>(
            a.rows, from, at.token, LIST ? slot_of_small_row(a.rows, slot) : 0, list, num))
        return false;
    if (weights_come(x) && a.rows.recv_weights && at.slice == 0)
        spread_own_weights(a.rows,
                           at.source == a.rows.comm.rank
                               ? a.rows.weights + at.token * a.rows.plan.shape.top_k
                               : words_in(a.rows.banks, bank, from.at.row),
                           slot);
    __syncwarp();
    return true;
}

/* The warps that take rows: not those of the block that shows the view, if there are others. */
static __device__ struct crew taking_crew(const struct epx_banks &banks)
{
    const struct crew all = crew_of(banks);
    const int32_t warps = (int32_t)blockDim.x / EPX_WARP;

    if (all.num == warps)
        return all;
    return {shows_view() ? INT32_MAX : all.warp - (int32_t)threadIdx.x / EPX_WARP, all.num - warps};
}

/* Takes this rank's own rows first. Returns whether the rows that this warp takes have come. */
template <bool LIST>
static __device__ bool take_by_ids(const struct epx_route_dispatch &a, const struct exchange &x,
                                   const struct small_routing &s, char *bank, struct row_list &list)
{
    const struct crew crew = taking_crew(a.rows.banks);
    const uint32_t slices = (uint32_t)a.rows.banks.slices.num;
    const int32_t tokens = a.rows.plan.shape.max_tokens, all = a.rows.comm.num_ranks * tokens;

    for (uint32_t i = (uint32_t)crew.warp; i < (uint32_t)all * slices; i += (uint32_t)crew.num) {
        int32_t row = (int32_t)(i / slices) + a.rows.comm.rank * tokens;

        row -= row < all ? 0 : all;
        if ((s.mask[row] >> a.rows.comm.rank & 1) &&
            !take_slice<LIST>(a, x, s, bank, {row / tokens, row % tokens, (int32_t)(i % slices)},
                              list))
            return false;
    }
    return true;
}

/* The slot of the i-th row that could be padding, by the offsets; -1 = it is none. */
static __device__ int64_t padding_by_offsets(const struct epx_route_tokens &a,
                                             const struct offsets &o, int64_t i)
{
    const struct epx_plan_shape &shape = a.plan.shape;
    int64_t local = i / shape.zeroed_padding, last = a.comm.num_ranks - 1;
    int64_t start = o.from[local * a.comm.num_ranks];
    int64_t end = o.from[local * a.comm.num_ranks + last] +
                  counts_from(a, o, (int32_t)last)[shape.first_expert + local];
    int64_t slot = end + i % shape.zeroed_padding;
    int64_t next = start + epx_slab_rows(&shape, end - start);

    return slot < next && slot < o.capacity[a.comm.rank] ? slot : -1;
}

/* Zeroes rows of a field that nothing arrives in, and their weights, by the offsets: the view is
 * another block's to fill. */
static __device__ void zero_field(const struct epx_route_dispatch &a, const struct offsets &o,
                                  const struct field_rows &to, float *weights)
{
    const struct epx_plan_shape &shape = a.routing.plan.shape;
    const struct crew crew = crew_of(a.rows.banks);
    const int32_t me = a.rows.comm.rank;

    for (int64_t i = crew.warp; i < shape.num_local * shape.zeroed_padding; i += crew.num) {
        int64_t slot = padding_by_offsets(a.routing, o, i);

        if (slot >= 0)
            zero_padded(to.rows, to.row_bytes, weights, slot);
    }
    zero_rows_from(a.rows, epx_used_rows(&shape, o.required[me], o.capacity[me]), to, weights,
                   crew);
}

template <bool LIST>
static __device__ void zero_by_offsets(const struct epx_route_dispatch &a, const struct exchange &x,
                                       const struct offsets &o)
{
    float *weights = weights_come(x) ? a.rows.recv_weights : NULL;

    for (int32_t f = 0; f < (LIST ? a.rows.fields.num : 1); f++)
        zero_field(a, o, rows_of_field<LIST>(a.rows, f), f ? NULL : weights);
}

/* A block that takes rows; what the plan has of pairs and rows is written behind them. */
template <bool LIST>
static __device__ void route_and_take(const struct epx_route_dispatch &a, struct exchange &x,
                                      struct small_routing &s, struct row_list &list)
{
    char *bank = bank_on(a.rows.comm, a.rows.banks, x.epoch, a.rows.comm.rank);
    bool ok;

    if (!receive_ids(a.routing, x, s) || !find_small_offsets(a.routing, x, s))
        return;
    if (shows_view())
        show_all(a.routing, s);
    ok = take_by_ids<LIST>(a, x, s, bank, list);
    place_all(a.routing, s);
    if (ok)
        zero_by_offsets<LIST>(a, x, s.o);
    ok = all_content(a.rows.comm, x, ok);
    if (ok && shows_view() && is_last_thread())
        count_route_rows(a.rows.comm, a.rows.plan, a.rows.plan.send_rows, a.rows.row_bytes);
}

template <bool LIST>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    route_dispatch_small(const __grid_constant__ struct epx_route_dispatch a,
                         const __grid_constant__ struct epx_small_parts parts)
{
    extern __shared__ __align__(16) char small_shared[];
    __shared__ struct exchange x;
    __shared__ struct small_routing s;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    struct row_list &list = lists[threadIdx.x / EPX_WARP];
    const bool takes = !is_sender(a.rows.banks);
    const uint32_t tellers = (uint32_t)senders_here(a.rows.banks.phase, a.rows.banks.senders);
    struct first_look look;
    struct told_word told;
    bool remarked;

    told = prepare_ids(a.routing, tellers);
    if (takes)
        prepare_small(a.routing, small_shared, parts, s);
    begin_phase(a.rows.banks.phase);
    look = look_first(a.rows.comm);
    read_told(a.routing, told);
    begin_small(a.rows.comm, a.rows.banks, a.rows.note, 0, look, x);
    if (x.outcome.code == EPX_SUCCESS) {
        send_ids(a.routing, x, tellers, told);
        if (takes)
            route_and_take<LIST>(a, x, s, list);
        else if (a.rows.comm.num_ranks > 1)
            store_by_ids<LIST>(a, x.epoch, list);
        if (takes && threadIdx.x == 0 && shows_view())
            a.rows.comm.state->outcome = x.outcome;
    }
    if (!is_last_of_small(a.rows.comm, a.rows.banks, x, {a.rows.note, NULL, takes}))
        return;
    /* Blocks that store do not know whether there was room, those that take what others told. */
    remarked = x.remarks || a.rows.banks.phase == EPX_PHASE_TAKE;
    if (x.outcome.code == EPX_SUCCESS && remarked)
        x.outcome = a.rows.comm.state->outcome;
    end_routing(a.routing, x, false, remarked);
}

template <bool LIST>
static int launch_route_dispatch_small(const struct epx_route_dispatch &args, EPX_Stream stream)
{
    struct epx_small_parts parts =
        epx_small_parts_of(&args.routing.plan, args.routing.comm.num_ranks);
    struct phase_launch launch = small_launch(args.rows.banks, stream);

    launch.shared_bytes = (unsigned)epx_small_bytes(&parts);
    return launch_phase(launch, route_dispatch_small<LIST>, args, parts);
}

#endif
