/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * row_movers.cuh - what both roles of move_rows know, and its senders. A sender takes a token's row
 * once from the user's memory to every place that it has: all its slots here, and the first slot on
 * each other rank, or the stage of a rank whose receive buffer is in no window. row_receivers.cuh
 * has the receivers, sender_progress.cuh the protocol. A task of a sender is one slice of a token's
 * row, or the short rows of several tokens (row_bundles.cuh); its warps claim runs of tasks.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_ROW_MOVERS_CUH
#define EPX_KERNELS_FLOWS_ROWS_ROW_MOVERS_CUH

#include "kernels/flows/rows/windows.cuh"
#include "kernels/protocol/task_claims.cuh"
#include "kernels/warp/boxes.cuh"
#include "kernels/wires/sender_progress.cuh"

/* Where the slice in a box comes from and where it goes; its user knows what a slot means. */
struct goal_list {
    int32_t num;
    int32_t from_rank, from_token, from_slot, slice; /* of a receiver's row */
    int64_t task;                                    /* of a sender */
    int32_t rank[EPX_MAX_TOP_K], slot[EPX_MAX_TOP_K];
};

/* What a warp of either role knows. */
template <bool LIST> struct mover {
    const struct epx_dispatch_rows &a;
    const struct exchange &x;
    const struct windows<LIST> &w;
    struct boxes &boxes;
    struct crew crew; /* of its role */
    bool weighted;    /* weights come, and the user takes them */
    bool keeps;       /* senders take rows to their slots here */

    /* Tasks are numbered row by row, and in a row by slices, of which most rows have one. */
    __device__ __forceinline__ struct part part_of_task(int64_t i) const
    {
        const int32_t num = a.movers.slices.num;

        return part_of(a.movers.slices, num == 1 ? 0 : (int32_t)(i % num), a.row_bytes);
    }

    __device__ __forceinline__ int64_t row_of_task(int64_t i) const
    {
        const int32_t num = a.movers.slices.num;

        return num == 1 ? i : i / num;
    }

    __device__ __forceinline__ int32_t slice_of_task(int64_t i) const
    {
        return (int32_t)(i - row_of_task(i) * a.movers.slices.num);
    }
};

template <bool LIST>
static __device__ __forceinline__ struct goal_list &goals_in(const struct mover<LIST> &m,
                                                             int32_t box)
{
    return label_of<struct goal_list>(m.boxes, box);
}

/* Fills a box with a slice of a row; from(piece) is where a piece of it lies. */
template <bool LIST, typename From>
static __device__ __forceinline__ void fill_box(const struct mover<LIST> &m, int32_t box,
                                                const struct part &part, From from)
{
    int64_t at = 0;

    for_pieces<LIST>(m.a, part.offset, part.bytes, [&](const struct piece &piece) {
        const char *in = from(piece);

        at = begin_of_piece(at, in);
        load_piece(m.boxes, box, at, in, piece.bytes);
        at = end_of_piece(at, piece.bytes);
    });
    end_loads(m.boxes, box);
}

/* Empties a box into its goals, of which to(piece, i) is the i-th. */
template <bool LIST, typename From, typename To>
static __device__ __forceinline__ void empty_box(const struct mover<LIST> &m, int32_t box,
                                                 const struct part &part, From from, To to)
{
    const int32_t num = goals_in(m, box).num;
    int64_t at = 0;

    for_pieces<LIST>(m.a, part.offset, part.bytes, [&](const struct piece &piece) {
        at = begin_of_piece(at, from(piece));
        const char *data = data_in(m.boxes, box) + at;

        for (int32_t i = lane_id(); i - lane_id() < num; i += EPX_WARP)
            store_piece(i < num ? to(piece, i) : NULL, data, piece.bytes);
        at = end_of_piece(at, piece.bytes);
    });
}

/* The whole warp: adds a goal of each lane that has one. */
static __device__ __forceinline__ void add_goals(struct goal_list &goals, int32_t &num, bool has,
                                                 int32_t rank, int32_t slot)
{
    const uint32_t lanes = __ballot_sync(~0u, has);

    if (has) {
        int32_t at = num + __popc(lanes & lanes_below());

        goals.rank[at] = rank;
        goals.slot[at] = slot;
    }
    num += __popc(lanes);
}

/* The whole warp: adds the rows of a token that go to other ranks, or the one that stays here. */
static __device__ void add_rows_of_token(const struct epx_dispatch_rows &a, int64_t token,
                                         bool stay, struct goal_list &goals, int32_t &num)
{
    const int32_t most = a.plan.most_rows, rows = a.plan.token_num[token];

    for (int32_t i = lane_id(); i - lane_id() < most; i += EPX_WARP) {
        const int32_t rank = i < most ? a.plan.token_rank[token * most + i] : -1;
        const int32_t slot = i < most ? a.plan.token_slot[token * most + i] : -1;

        add_goals(goals, num, i < rows && slot >= 0 && (rank == a.comm.rank) == stay, rank, slot);
    }
}

/* The whole warp: adds the slots of a token's pairs here. */
static __device__ void add_pairs_of_token(const struct epx_dispatch_rows &a, int64_t token,
                                          struct goal_list &goals, int32_t &num)
{
    const int32_t top_k = a.plan.shape.top_k;

    for (int32_t k = lane_id(); k - lane_id() < top_k; k += EPX_WARP) {
        const int32_t rank = k < top_k ? a.plan.pair_rank[token * top_k + k] : -1;
        const int32_t slot = k < top_k ? a.plan.view.slots[token * top_k + k] : -1;

        add_goals(goals, num, rank == a.comm.rank, rank, slot);
    }
}

/* The whole warp: the goals of a token: its rows on other ranks, then its slots here. */
template <bool LIST>
static __device__ void list_goals(const struct mover<LIST> &m, int64_t token,
                                  struct goal_list &goals)
{
    int32_t num = 0;

    add_rows_of_token(m.a, token, false, goals, num);
    if (m.keeps && m.a.plan.shape.rank_major)
        add_rows_of_token(m.a, token, true, goals, num);
    else if (m.keeps)
        add_pairs_of_token(m.a, token, goals, num);
    if (lane_id() == 0)
        goals.num = num;
    __syncwarp();
}

/* The whole warp: the weights of tokens' pairs, those for other ranks as send_weights does. */
template <bool LIST>
static __device__ void move_weights(const struct mover<LIST> &m, int64_t token, int32_t tokens)
{
    const struct epx_device_plan &plan = m.a.plan;
    const int32_t own = m.a.comm.rank, top_k = plan.shape.top_k;
    const int64_t first = token * top_k;

    for (int32_t i = lane_id(); i < tokens * top_k; i += EPX_WARP) {
        const int32_t rank = plan.pair_rank[first + i];
        const float weight = m.a.weights[first + i];

        if (rank == own && m.weighted && !plan.shape.rank_major)
            m.a.recv_weights[plan.view.slots[first + i]] = weight;
        else if (rank >= 0 && rank != own)
            ((float *)(void *)
                 plan.weights[rank])[(int64_t)own * plan.shape.max_tokens * top_k + first + i] =
                weight;
    }
}

/* One lane: the weight of a choice of a row here; 0 if it is another rank's. */
template <bool LIST>
static __device__ __forceinline__ void set_own_weight(const struct mover<LIST> &m, int64_t token,
                                                      int32_t slot, int32_t k)
{
    const int32_t top_k = m.a.plan.shape.top_k;
    const bool here = m.a.plan.pair_rank[token * top_k + k] == m.a.comm.rank;

    m.a.recv_weights[(int64_t)slot * top_k + k] = here ? m.a.weights[token * top_k + k] : 0;
}

/* The whole warp: the weights of a row here, one for each choice. */
template <bool LIST>
static __device__ void set_own_weights(const struct mover<LIST> &m, int64_t token, int32_t slot)
{
    for (int32_t k = lane_id(); k < m.a.plan.shape.top_k; k += EPX_WARP)
        set_own_weight(m, token, slot, k);
}

/* How far the senders of a rank are with a run of tasks, when one of it is done. */
struct sender_step {
    int32_t run;
    int64_t step;
};

static __device__ __forceinline__ struct sender_step step_of_task(const struct epx_dispatch_rows &a,
                                                                  int64_t task)
{
    return {(int32_t)(task / a.movers.run), task % a.movers.run + 1};
}

/* What a sender's warp has claimed. It tells of every second task of a run, and of the last one,
 * when the stores of the task behind it are under way. */
template <bool LIST> struct sender_runs {
    const struct mover<LIST> &m;
    const int64_t num;      /* tasks of all senders */
    struct task_claims run; /* under way */
    int64_t next, rest;     /* the run's next task, if it has any left */
    int64_t last;           /* task that ended; -1 = none yet */

    /* Whether there is a task that has not begun; goes on to the next run if it must. */
    __device__ __forceinline__ bool has_next()
    {
        if (rest > 0)
            return true;
        claim_next(m.a.comm, run);
        next = run.task * m.a.movers.run;
        rest = num - next < m.a.movers.run ? num - next : m.a.movers.run;
        return rest > 0;
    }

    /* Tells of all tasks up to the last one. */
    __device__ __forceinline__ void tell()
    {
        const struct sender_step done = step_of_task(m.a, last);

        tell_progress(m.a.comm, m.x.epoch, done.run, done.step);
    }

    /* All places of a task have been stored to. */
    __device__ __forceinline__ void end_task(int64_t task)
    {
        end_stores();
        if (last >= 0 && task % m.a.movers.run % 2 == 0) {
            await_stores<1>();
            tell();
        }
        last = task;
    }
};

template <bool LIST>
static __device__ __forceinline__ sender_runs<LIST> runs_of(const struct mover<LIST> &m,
                                                            int64_t num)
{
    return {m, num, no_task_of(m.crew, &m.a.comm.state->runs), 0, 0, -1};
}

/* The tasks of a sender's warp: slices of tokens' rows. */
template <bool LIST> struct sender : sender_runs<LIST> {
    using sender_runs<LIST>::m;
    using sender_runs<LIST>::next;
    using sender_runs<LIST>::rest;

    __device__ __forceinline__ const char *source(const struct piece &piece, int64_t token) const
    {
        return piece.in + token * piece.row_bytes + piece.offset;
    }

    __device__ bool begin(int32_t box)
    {
        struct goal_list &goals = goals_in(m, box);

        if (__any_sync(~0u, aborted(m.a.comm)) || !this->has_next())
            return false;
        const int64_t token = m.row_of_task(next);

        if (lane_id() == 0)
            goals.task = next;
        list_goals(m, token, goals);
        if (goals.num)
            fill_box(m, box, m.part_of_task(next),
                     [&](const struct piece &piece) { return source(piece, token); });
        next++;
        rest--;
        return true;
    }

    __device__ __forceinline__ char *place(const struct goal_list &goals, int32_t i, int64_t token,
                                           const struct piece &piece, int64_t offset) const
    {
        const struct goal goal = {goals.rank[i], goals.slot[i], token};

        if (goal.rank == m.a.comm.rank)
            return piece.out + goal.slot * piece.row_bytes + piece.offset;
        return place_at(m.a, m.x, m.w, piece, goal, offset);
    }

    __device__ void send(int32_t box, int64_t token, const struct part &part)
    {
        const struct goal_list &goals = goals_in(m, box);

        await_box(m.boxes, box);
        empty_box(
            m, box, part, [&](const struct piece &piece) { return source(piece, token); },
            [&](const struct piece &piece, int32_t i) {
                return place(goals, i, token, piece, part.offset);
            });
    }

    __device__ void send_weights_of(int32_t box, int64_t token)
    {
        const struct goal_list &goals = goals_in(m, box);
        const int32_t last = goals.num - 1;

        move_weights(m, token, 1);
        if (m.weighted && m.a.plan.shape.rank_major && goals.rank[last] == m.a.comm.rank)
            set_own_weights(m, token, goals.slot[last]);
    }

    __device__ void end(int32_t box)
    {
        const int64_t task = goals_in(m, box).task, token = m.row_of_task(task);
        const struct part part = m.part_of_task(task);

        if (goals_in(m, box).num) {
            send(box, token, part);
            if (weights_come(m.x) && part.offset == 0)
                send_weights_of(box, token);
        }
        this->end_task(task);
    }
};

/* All that a sender's warp does. */
template <typename Sender>
static __device__ __forceinline__ void send_tasks(Sender &sender, const struct boxes &boxes)
{
    do_tasks(sender, boxes);
    await_stores<0>();
    if (!__any_sync(~0u, aborted(sender.m.a.comm)) && sender.last >= 0)
        sender.tell();
}

template <bool LIST> static __device__ void send_all(const struct mover<LIST> &m)
{
    struct sender<LIST> sender = {
        runs_of(m, (int64_t)m.a.num_tokens *m.a.movers.slices.num)
    };

    send_tasks(sender, m.boxes);
}

#endif
