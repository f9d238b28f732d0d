/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * row_receivers.cuh - the receivers of move_rows. A receiver waits for a row that another rank sent
 * and takes it to its further slots, out of the stage to all. Where all rows lie in their first
 * slots before the kernel begins, its blocks all take. rows_that_stay.cuh has receivers of rows
 * that are to go no further.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_ROW_RECEIVERS_CUH
#define EPX_KERNELS_FLOWS_ROWS_ROW_RECEIVERS_CUH

#include "kernels/flows/rows/row_movers.cuh"
#include "kernels/flows/rows/spreads.cuh"

/* How far they are with its run when a slice of a token's row has been moved. Several rows of a
 * task have one slice each. */
static __device__ __forceinline__ struct sender_step
step_of_slice(const struct epx_dispatch_rows &a, int64_t token, int32_t slice)
{
    return step_of_task(a, (token >> a.movers.rows_log2) * a.movers.slices.num + slice);
}

/* One lane: waits for a slice of a token's row. */
static __device__ __forceinline__ bool await_slice(const struct epx_dispatch_rows &a,
                                                   const struct exchange &x, int32_t source,
                                                   int64_t token, int32_t slice)
{
    const struct sender_step told = step_of_slice(a, token, slice);

    return await_progress(a.comm, x.epoch, source, told.run, told.step);
}

/* The most records that any of the ranks from the first-th behind this one on has sent here. */
static __device__ int32_t most_records(const struct epx_dispatch_rows &a, int32_t first)
{
    int32_t most = 0;

    for (int32_t i = first + lane_id(); i < a.comm.num_ranks; i += EPX_WARP) {
        const int32_t num = a.plan.view.rank_counts[(a.comm.rank + i) % a.comm.num_ranks];

        most = num > most ? num : most;
    }
    return __reduce_max_sync(~0u, most);
}

/* The i-th of the records that all receivers share: their sources take turns, from the first-th
 * behind this rank on. NULL if the source has fewer. */
static __device__ __forceinline__ struct epx_wire_record *
record_in_turn(const struct epx_dispatch_rows &a, int32_t first, int64_t i, int32_t &source)
{
    const int32_t ranks = a.comm.num_ranks, others = ranks - first;

    source = (int32_t)((a.comm.rank + first + i % others) % ranks);
    if (i / others >= a.plan.view.rank_counts[source])
        return NULL;
    return epx_wire_record_at(&a.plan, a.plan.records[a.comm.rank], source, i / others);
}

/* The tasks of a receiver's warp: slices of records. */
template <bool LIST> struct receiver {
    const struct mover<LIST> &m;
    const bool waits;    /* for other ranks' rows; else all are here, those of this rank too */
    const bool stays;    /* rows came straight to their first slots */
    const int32_t first; /* 1: this rank's own rows are not taken, else 0 */
    const int64_t num;   /* tasks, as if all sources had as many records */
    struct task_claims claims;

    __device__ __forceinline__ const char *
    source(const struct goal_list &goals, const struct part &part, const struct piece &piece) const
    {
        if (stays)
            return piece.out + goals.from_slot * piece.row_bytes + piece.offset;
        return staged_row(m.a, m.a.comm.rank, goals.from_rank, goals.from_token) + part.offset +
               piece.ahead;
    }

    /* The slice of a task; notes in its box where the row comes from. */
    __device__ __forceinline__ struct epx_wire_record *record_of(int64_t i, int32_t box,
                                                                 int32_t &slice) const
    {
        int32_t source;
        struct epx_wire_record *record = record_in_turn(m.a, first, m.row_of_task(i), source);

        slice = m.slice_of_task(i);
        if (lane_id() == 0) {
            goals_in(m, box).from_rank = source;
            goals_in(m, box).slice = slice;
        }
        return record;
    }

    __device__ __forceinline__ void list_slots(struct epx_wire_record *record,
                                               struct goal_list &goals) const
    {
        const struct epx_wire_pair *pairs = epx_wire_pairs(record);
        const int32_t done = stays ? 1 : 0, num = record->num_slots - done;

        for (int32_t i = lane_id(); i < num; i += EPX_WARP)
            goals.slot[i] = pairs[done + i].slot;
        if (lane_id() == 0) {
            goals.num = num;
            goals.from_token = record->token;
            goals.from_slot = pairs[0].slot;
        }
    }

    /* Waits for a slice of a record's row, then begins to load it. */
    __device__ bool take(int32_t box, struct epx_wire_record *record, int32_t slice)
    {
        struct goal_list &goals = goals_in(m, box);
        const struct part part = part_of(m.a.movers.slices, slice, m.a.row_bytes);
        bool ok = true;

        list_slots(record, goals);
        __syncwarp();
        if (waits && lane_id() == 0)
            ok = await_slice(m.a, m.x, goals.from_rank, record->token, slice);
        if (waits && !acquire_progress(m.a.comm, ok))
            return false;
        if (m.weighted && slice == 0)
            spread_weights(m.a, weights_from(m.a, goals.from_rank, record->token), record);
        if (goals.num)
            fill_box(m, box, part,
                     [&](const struct piece &piece) { return source(goals, part, piece); });
        return true;
    }

    __device__ bool begin(int32_t box)
    {
        int32_t slice;
        struct epx_wire_record *record;

        claim_next(m.a.comm, claims);
        if (claims.task >= num)
            return false;
        record = record_of(claims.task, box, slice);
        if (record && record->num_slots)
            return take(box, record, slice);
        if (lane_id() == 0)
            goals_in(m, box).num = 0;
        __syncwarp();
        return true;
    }

    __device__ void end(int32_t box)
    {
        const struct goal_list &goals = goals_in(m, box);
        const struct part part = part_of(m.a.movers.slices, goals.slice, m.a.row_bytes);

        if (goals.num) {
            await_box(m.boxes, box);
            empty_box(
                m, box, part, [&](const struct piece &piece) { return source(goals, part, piece); },
                [&](const struct piece &piece, int32_t i) {
                    return piece.out + goals.slot[i] * piece.row_bytes + piece.offset;
                });
        }
        end_stores();
    }
};

template <bool LIST>
static __device__ void take_all(const struct mover<LIST> &m, bool waits, bool stays)
{
    const int32_t first = waits ? 1 : 0;
    const int64_t all =
        (int64_t)most_records(m.a, first) * (m.a.comm.num_ranks - first) * m.a.movers.slices.num;
    struct receiver<LIST> receiver = {
        m, waits, stays, first, all, no_task_of(m.crew, &m.a.comm.state->taken)
    };

    do_tasks(receiver, m.boxes);
    await_stores<0>();
}

/* A lane: the weights of a record's row, one for each choice; those of other ranks are 0. */
template <bool LIST>
static __device__ __forceinline__ void set_weights(const struct mover<LIST> &m, int32_t source,
                                                   struct epx_wire_record *record)
{
    const int32_t top_k = m.a.plan.shape.top_k;
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    const float *weights = weights_from(m.a, source, record->token);
    float *wide = m.a.recv_weights + (int64_t)pairs[0].slot * top_k;

    for (int32_t k = 0; k < top_k; k++)
        wide[k] = 0;
    for (int32_t i = 0; i < record->num_pairs; i++) {
        const uint32_t choice = pairs[i].expert_choice & 255;

        wide[choice] = weights[choice];
    }
}

#endif
