/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * few_rows.cuh - a dispatch of few rows in one launch: each token's row goes into the bank of
 * every other rank that needs it, and from there, or from this rank's own rows, to all its slots.
 * banks.cuh has the protocol.
 * Work: reads T rows, stores this rank's unique rows, reads what came, writes all slots. Order:
 * none, every byte has one writer.
 * Launch: phases.cuh; blocks that store, then blocks that take.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_FEW_ROWS_CUH
#define EPX_KERNELS_FLOWS_ROWS_FEW_ROWS_CUH

#include "kernels/flows/rows/small_rows.cuh"
#include "kernels/flows/rows/spreads.cuh"
#include "kernels/protocol/records.cuh"

/* The slot of the record's row that this lane stores to; -1 = none. */
static __device__ __forceinline__ int64_t slot_of_lane(const struct epx_dispatch_rows &a,
                                                       struct epx_wire_record *record)
{
    int32_t num = a.plan.shape.rank_major ? 1 : record->num_slots;

    return lane_id() < num ? epx_wire_pairs(record)[lane_id()].slot : -1;
}

/* The whole warp: one slice of a row to all its slots, and weights with the first. Returns whether
 * the ranks agree and the slice has come. */
template <typename Wire, bool LIST>
static __device__ bool take_banked_slice(const struct epx_dispatch_rows &a, char *bank,
                                         const struct row_slice &at, struct epx_wire_record *record,
                                         struct verdict &verdict, struct row_list &list)
{
    const struct part part = part_of_slice<LIST>(a, at.slice);
    const int32_t num = LIST ? 0 : list_slots(a, part, record, list);
    const struct coming_slice from = slice_from(a, Wire::stamp_of(verdict.x.epoch), bank, at);
    const bool comes = at.source != a.comm.rank;
    const float *weights = comes ? list.weight : a.weights + at.token * a.plan.shape.top_k;

    if (!verdict() ||
        !spread_slice<Wire, LIST>(a, from, at.token, LIST ? slot_of_lane(a, record) : 0, list, num))
        return false;
    if (at.slice == 0 && a.recv_weights && weights_come(verdict.x)) {
        if (comes && !list_weights<Wire>(a, from, list))
            return false;
        spread_weights(a, weights, record);
    }
    __syncwarp();
    return true;
}

/* Takes this rank's own rows first; the first slice is looked up beside the wait for the verdict.
 * Returns whether the ranks agree and the rows that this warp takes have come. */
template <typename Wire, bool LIST>
static __device__ bool take_small_rows(const struct epx_dispatch_rows &a,
                                       const struct record_range &range, struct verdict &verdict,
                                       struct row_list &list)
{
    const struct exchange &x = verdict.x;
    const struct crew crew = crew_of(a.banks);
    const uint32_t slices = (uint32_t)a.banks.slices.num;
    const int64_t own = records_before(range, a.comm.rank);
    char *records = a.plan.records[a.comm.rank],
         *bank = bank_on(a.comm, a.banks, x.epoch, a.comm.rank);

    for (uint32_t i = (uint32_t)crew.warp; i < (uint32_t)range.num * slices;
         i += (uint32_t)crew.num) {
        const int32_t slice = (int32_t)(i % slices);
        const int64_t number = own + i / slices;
        struct row_source at =
            find_in_range(range, number < range.num ? number : number - range.num);
        struct epx_wire_record *record = epx_wire_record_at(&a.plan, records, at.source, at.row);

        if (record->num_slots &&
            !take_banked_slice<Wire, LIST>(a, bank, {at.source, record->token, slice}, record,
                                           verdict, list))
            return false;
    }
    if (!verdict())
        return false;
    zero_rest<LIST>(a, a.recv_weights && weights_come(x), crew);
    return true;
}

/* A block that takes; `agreed` are ranks that have agreed before. Records of a routing that failed
 * are not looked at. */
template <typename Wire, bool LIST>
static __device__ void take_from_banks(const struct epx_dispatch_rows &a, struct exchange &x,
                                       bool agreed, const struct record_range &range,
                                       struct row_list &list)
{
    struct verdict verdict = {a.comm, a.note, x, a.plan.outcome, agreed, agreed};
    bool ok =
        a.plan.outcome->code == EPX_SUCCESS && take_small_rows<Wire, LIST>(a, range, verdict, list);

    if (!verdict())
        return;
    if (is_last_thread())
        count_route_rows(a.comm, a.plan, a.plan.send_rows, a.row_bytes);
    all_content(a.comm, x, ok);
}

template <typename Wire, bool LIST>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    dispatch_small(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct record_range range;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    struct row_list &list = lists[threadIdx.x / EPX_WARP];
    const bool takes = !is_sender(a.banks), agreed = a.comm.half == HALF_DISPATCH;

    begin_phase(a.banks.phase);
    if (takes && is_last_warp())
        find_all_records(a.plan, a.comm.num_ranks, -1, range);
    if (agreed)
        resume_small(a.comm, x);
    else
        begin_small(a.comm, a.banks, a.note, a.plan.outcome->code, look_first(a.comm), x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (!takes && a.comm.num_ranks > 1 && a.plan.outcome->code == EPX_SUCCESS)
            send_small_rows<Wire, LIST>(a, x.epoch, list);
        if (takes)
            take_from_banks<Wire, LIST>(a, x, agreed, range, list);
    }
    if (!is_last_of_small(a.comm, a.banks, x, {a.note, a.plan.outcome, takes || agreed}))
        return;
    if (agreed && x.outcome.code == EPX_SUCCESS)
        x.outcome = a.comm.state->ids;
    end_exchange(a.comm, x, 0, 0, *a.plan.view.arrived_rows, x.outcome);
}

#endif
