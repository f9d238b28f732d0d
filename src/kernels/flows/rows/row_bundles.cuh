/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * row_bundles.cuh - both roles of move_rows, and the senders of move_grads, where rows are so short
 * that a warp moves a bundle of them at once: as a sender those of tokens that follow each other,
 * which lie together in the user's memory; as a receiver those of as many records of one source
 * that follow each other. A row alone takes a warp some microseconds however short it is: it waits
 * for one load after the other, of where the row goes and of the row. Here each lane looks up and
 * stores to another place, for all rows of the bundle at once.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_ROW_BUNDLES_CUH
#define EPX_KERNELS_FLOWS_ROWS_ROW_BUNDLES_CUH

#include "kernels/flows/rows/row_receivers.cuh"
#include "kernels/protocol/protocol.cuh"

static __device__ __forceinline__ int64_t rows_of_bundle(const struct epx_dispatch_rows &a)
{
    return (int64_t)1 << a.movers.rows_log2;
}

/* Where the rows in a box go. */
struct place_list {
    int32_t num;  /* places */
    int64_t task; /* of a sender */
    char *place[EPX_BUNDLE_PLACES];
    int32_t at[EPX_BUNDLE_PLACES]; /* where in the box the place's row begins */
};

/* What goes into the boxes of a warp that has so much room. */
static __device__ __forceinline__ struct box_shape
shape_of_bundles(const struct epx_dispatch_rows &a, int32_t room)
{
    return {room, sizeof(struct place_list), rows_of_bundle(a) * epx_bundle_pitch(a.row_bytes),
            EPX_ROW_ENDS, EPX_LINE};
}

static __device__ __forceinline__ struct place_list &places_in(const struct mover<false> &m,
                                                               int32_t box)
{
    return label_of<struct place_list>(m.boxes, box);
}

/* The only piece of a row. */
static __device__ __forceinline__ struct piece whole_row(const struct epx_dispatch_rows &a)
{
    return {a.rows, a.recv, 0, a.row_bytes, 0, a.row_bytes, 0};
}

/* The whole warp: adds a place of each lane that has one, for the row that begins `at` bytes behind
 * the box. */
static __device__ __forceinline__ void add_place(struct place_list &places, int32_t &listed,
                                                 char *place, int64_t at)
{
    const uint32_t lanes = __ballot_sync(~0u, place != NULL);

    if (place) {
        const int32_t i = listed + __popc(lanes & lanes_below());

        places.place[i] = place;
        places.at[i] = (int32_t)at;
    }
    listed += __popc(lanes);
}

/* The whole warp: the record that a lane has. */
static __device__ __forceinline__ struct epx_wire_record *
record_in_lane(struct epx_wire_record *record, int32_t lane)
{
    return (struct epx_wire_record *)__shfl_sync(~0u, (unsigned long long)record, lane);
}

/* The whole warp: stores the rows in a box to all their places. */
static __device__ void store_bundle(const struct mover<false> &m, int32_t box)
{
    const struct place_list &places = places_in(m, box);
    const int64_t bytes = m.a.row_bytes;

    for (int32_t first = 0; first < places.num; first += EPX_WARP) {
        const int32_t i = first + lane_id();
        char *place = i < places.num ? places.place[i] : NULL;
        const char *row = data_in(m.boxes, box) + (place ? places.at[i] : 0);
        const bool alike = HAS_BULK_COPIES && misalignment(place) == misalignment(row);
        uint32_t others = __ballot_sync(~0u, place && !alike);

        if (place && alike)
            store_alike(place, row, bytes);
        for (; others; others &= others - 1) {
            const int32_t other = first + __ffs((int)others) - 1;

            store_shifted(places.place[other], data_in(m.boxes, box) + places.at[other], bytes);
        }
    }
}

/* The tasks of a sender's warp: bundles of tokens' rows. */
struct bundle_sender : sender_runs<false> {
    /* Where a token's row lies in the box of a bundle that begins with the row of `first`. */
    __device__ __forceinline__ int64_t at_of(int64_t token, int64_t first) const
    {
        const char *rows = m.a.rows + first * m.a.row_bytes;

        return begin_of_piece(0, rows) + (token - first) * m.a.row_bytes;
    }

    __device__ __forceinline__ int64_t end_token(int64_t first) const
    {
        const int64_t end = first + rows_of_bundle(m.a);

        return end < m.a.num_tokens ? end : m.a.num_tokens;
    }

    /* The rows of tokens: those for other ranks, and in a layout of a row a rank the one that stays
     * here. */
    __device__ void add_rows(int64_t first, struct place_list &places, int32_t &listed) const
    {
        const int32_t most = m.a.plan.most_rows;
        const int32_t all = (int32_t)(end_token(first) - first) * most;
        const struct piece piece = whole_row(m.a);

        for (int32_t i = lane_id(); i - lane_id() < all; i += EPX_WARP) {
            const int64_t token = first + i / most, row = first * most + i;
            const bool has = i < all && i % most < m.a.plan.token_num[token];
            const int32_t slot = has ? m.a.plan.token_slot[row] : -1;
            const struct goal goal = {has ? m.a.plan.token_rank[row] : -1, slot, token};
            char *place = NULL;

            if (slot >= 0 && goal.rank != m.a.comm.rank)
                place = place_at(m.a, m.x, m.w, piece, goal, 0);
            else if (slot >= 0 && m.keeps && m.a.plan.shape.rank_major)
                place = piece.out + slot * piece.row_bytes;
            add_place(places, listed, place, at_of(token, first));
        }
    }

    /* The slots of tokens' pairs here. */
    __device__ void add_pairs(int64_t first, struct place_list &places, int32_t &listed) const
    {
        const int32_t top_k = m.a.plan.shape.top_k;
        const int32_t all = (int32_t)(end_token(first) - first) * top_k;

        for (int32_t i = lane_id(); i - lane_id() < all; i += EPX_WARP) {
            const int64_t pair = first * top_k + i;
            const bool here = i < all && m.a.plan.pair_rank[pair] == m.a.comm.rank;

            add_place(places, listed,
                      here ? m.a.recv + m.a.plan.view.slots[pair] * m.a.row_bytes : NULL,
                      at_of(first + i / top_k, first));
        }
    }

    __device__ bool begin(int32_t box)
    {
        struct place_list &places = places_in(m, box);
        int32_t listed = 0;

        if (__any_sync(~0u, aborted(m.a.comm)) || !has_next())
            return false;
        const int64_t first = next * rows_of_bundle(m.a);

        add_rows(first, places, listed);
        if (m.keeps && !m.a.plan.shape.rank_major)
            add_pairs(first, places, listed);
        if (lane_id() == 0) {
            places.num = listed;
            places.task = next;
        }
        __syncwarp();
        if (listed) {
            load_piece(m.boxes, box, at_of(first, first), m.a.rows + first * m.a.row_bytes,
                       (end_token(first) - first) * m.a.row_bytes);
            end_loads(m.boxes, box);
        }
        next++;
        rest--;
        return true;
    }

    /* In a layout of a row a rank: the weights of tokens' rows here, a lane a row. */
    __device__ void set_weights_here(int64_t first) const
    {
        const struct epx_device_plan &plan = m.a.plan;
        const int32_t most = plan.most_rows, all = (int32_t)(end_token(first) - first) * most;

        for (int32_t i = lane_id(); i < all; i += EPX_WARP) {
            const int64_t token = first + i / most, row = first * most + i;
            const bool has = i % most < plan.token_num[token];

            if (has && plan.token_rank[row] == m.a.comm.rank && plan.token_slot[row] >= 0)
                for (int32_t k = 0; k < plan.shape.top_k; k++)
                    set_own_weight(m, token, plan.token_slot[row], k);
        }
    }

    __device__ void send_weights_of(int64_t first) const
    {
        move_weights(m, first, (int32_t)(end_token(first) - first));
        if (m.weighted && m.a.plan.shape.rank_major)
            set_weights_here(first);
    }

    /* Rows of no bytes have no places in a buffer that is NULL, but weights. */
    __device__ void end(int32_t box)
    {
        const int64_t task = places_in(m, box).task;

        if (places_in(m, box).num) {
            await_box(m.boxes, box);
            store_bundle(m, box);
        }
        if (weights_come(m.x))
            send_weights_of(task * rows_of_bundle(m.a));
        end_task(task);
    }
};

static __device__ void send_bundles(const struct mover<false> &m)
{
    const int64_t rows = rows_of_bundle(m.a);
    struct bundle_sender sender = {runs_of(m, (m.a.num_tokens + rows - 1) / rows)};

    send_tasks(sender, m.boxes);
}

/* The tasks of a receiver's warp: bundles of records, each of a lane. */
struct bundle_receiver {
    const struct mover<false> &m;
    const bool waits;      /* for other ranks' rows; else all are here, those of this rank too */
    const bool stays;      /* rows came straight to their first slots */
    const int32_t skipped; /* 1: this rank's own rows are not taken, else 0 */
    const int64_t num;     /* tasks, as if all sources had as many records */
    struct task_claims claims;

    /* The lane's record of a task; NULL if it has none. */
    __device__ __forceinline__ struct epx_wire_record *record_of(int64_t task,
                                                                 int32_t &source) const
    {
        const int32_t others = m.a.comm.num_ranks - skipped;
        const int64_t row = task / others * rows_of_bundle(m.a) + lane_id();
        struct epx_wire_record *record =
            record_in_turn(m.a, skipped, row * others + task % others, source);

        return record && lane_id() < rows_of_bundle(m.a) && record->num_slots ? record : NULL;
    }

    __device__ __forceinline__ const char *row_of(int32_t source,
                                                  struct epx_wire_record *record) const
    {
        if (stays)
            return m.a.recv + epx_wire_pairs(record)->slot * m.a.row_bytes;
        return staged_row(m.a, m.a.comm.rank, source, record->token);
    }

    /* Adds the slots that the lanes' rows are taken to; `at` is where in the box that of this lane
     * is. */
    __device__ void add_slots(struct epx_wire_record *record, int64_t at, struct place_list &places,
                              int32_t &listed) const
    {
        const int32_t width = epx_most_slots_of_record(&m.a.plan.shape);
        const int32_t filled = stays ? 1 : 0;
        const int32_t all = (int32_t)rows_of_bundle(m.a) * width;

        for (int32_t i = lane_id(); i - lane_id() < all; i += EPX_WARP) {
            const int32_t lane = i < all ? i / width : 0, k = i % width + filled;
            struct epx_wire_record *other = record_in_lane(record, lane);
            const int64_t other_at = __shfl_sync(~0u, (long long)at, lane);
            const bool has = i < all && other && k < other->num_slots;

            add_place(places, listed,
                      has ? m.a.recv + epx_wire_pairs(other)[k].slot * m.a.row_bytes : NULL,
                      other_at);
        }
    }

    /* Begins to load the lanes' rows that go further. */
    __device__ void load_rows(int32_t box, const struct epx_wire_record *record, const char *from,
                              int64_t at) const
    {
        uint32_t lanes = __ballot_sync(~0u, record && record->num_slots > (stays ? 1 : 0));

        for (; lanes; lanes &= lanes - 1) {
            const int32_t lane = __ffs((int)lanes) - 1;

            load_piece(m.boxes, box, __shfl_sync(~0u, (long long)at, lane),
                       (const char *)__shfl_sync(~0u, (unsigned long long)from, lane),
                       m.a.row_bytes);
        }
        end_loads(m.boxes, box);
    }

    /* The weights of the lanes' records. */
    __device__ void take_weights(int32_t source, struct epx_wire_record *record) const
    {
        const int32_t top_k = m.a.plan.shape.top_k, all = (int32_t)rows_of_bundle(m.a) * top_k;

        if (m.a.plan.shape.rank_major) {
            if (record)
                set_weights(m, source, record);
            return;
        }
        for (int32_t i = lane_id(); i - lane_id() < all; i += EPX_WARP) {
            struct epx_wire_record *other = record_in_lane(record, i < all ? i / top_k : 0);

            if (i < all && other && i % top_k < other->num_pairs) {
                const struct epx_wire_pair pair = epx_wire_pairs(other)[i % top_k];

                m.a.recv_weights[pair.slot] =
                    weights_from(m.a, source, other->token)[pair.expert_choice & 255];
            }
        }
    }

    /* Waits for the lanes' rows, then begins to load them. */
    __device__ bool take(int32_t box, int32_t source, struct epx_wire_record *record)
    {
        struct place_list &places = places_in(m, box);
        const char *from = record ? row_of(source, record) : NULL;
        const int64_t at = begin_of_piece(lane_id() * epx_bundle_pitch(m.a.row_bytes), from);
        int32_t listed = 0;
        bool ok = true;

        add_slots(record, at, places, listed);
        if (lane_id() == 0)
            places.num = listed;
        if (waits && record)
            ok = await_slice(m.a, m.x, source, record->token, 0);
        if (waits && !acquire_progress(m.a.comm, ok))
            return false;
        if (m.weighted)
            take_weights(source, record);
        if (listed)
            load_rows(box, record, from, at);
        __syncwarp();
        return true;
    }

    __device__ bool begin(int32_t box)
    {
        int32_t source;

        claim_next(m.a.comm, claims);
        if (claims.task >= num)
            return false;
        struct epx_wire_record *record = record_of(claims.task, source);

        return take(box, source, record);
    }

    __device__ void end(int32_t box)
    {
        if (places_in(m, box).num) {
            await_box(m.boxes, box);
            store_bundle(m, box);
        }
        end_stores();
    }
};

static __device__ void take_bundles(const struct mover<false> &m, bool waits, bool stays)
{
    const int32_t skipped = waits ? 1 : 0, others = m.a.comm.num_ranks - skipped;
    const int64_t rows = rows_of_bundle(m.a);
    struct bundle_receiver receiver = {m,
                                       waits,
                                       stays,
                                       skipped,
                                       (most_records(m.a, skipped) + rows - 1) / rows * others,
                                       no_task_of(m.crew, &m.a.comm.state->taken)};

    do_tasks(receiver, m.boxes);
    await_stores<0>();
}

#endif
