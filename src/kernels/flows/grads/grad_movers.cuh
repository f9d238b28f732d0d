/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grad_movers.cuh - the role of receivers in move_grads; its senders are those of row_movers.cuh. A
 * receiver's warp does one record after the other: it waits for the record's row of gradients, or
 * reads it from the user's memory if the token is this rank's own, and block by block of 1024
 * elements scales it into every slot and multiplies it with the row that combine was given for the
 * slot. What it reads comes through boxes (boxes.cuh), so that several blocks are under way at
 * once. The first slot may be where the row came to: each block of it is read before it is written.
 */
#ifndef EPX_KERNELS_FLOWS_GRADS_GRAD_MOVERS_CUH
#define EPX_KERNELS_FLOWS_GRADS_GRAD_MOVERS_CUH

#include "kernels/flows/rows/row_receivers.cuh"
#include "kernels/warp/dots.cuh"

/* A box has pieces: the same block of the gradient of a record's row, and of the rows that combine
 * was given for its slots, or for some of them. So many pieces, each with room for its ends. */
template <typename T>
static constexpr int PIECES_OF_BOX = sizeof(T) == sizeof(uint16_t) ? SUMS_AT_ONCE : 1;
template <typename T>
static constexpr int32_t PIECE_ROOM = BLOCK_ELEMENTS *(int32_t)sizeof(T) + WORD_ENDS;

/* What is in a box: num pieces. Piece p is of the record's slot number first + p; number -1 is the
 * gradient. */
template <typename T> struct alignas(16) grad_block {
    int32_t block, first, num;
    int32_t slot[PIECES_OF_BOX<T>]; /* the row */
    float weight[PIECES_OF_BOX<T>];
    /* bytes by which the data is behind a multiple of 16; rows of any alignment */
    uint32_t odd[PIECES_OF_BOX<T>];
};

/* The slots of a record; in shared memory, one list a warp. */
template <typename T> struct slot_list {
    int32_t slot[EPX_MAX_TOP_K];
    float weight[EPX_MAX_TOP_K];
    typename T::sum dot[EPX_MAX_TOP_K]; /* products of the blocks so far */
};

/* How far a receiver's warp has read. */
struct grad_cursor {
    struct task_claims record; /* of those that all receivers share */
    int32_t num;               /* slots of the record; 0: the next record is to be found */
    const char *grad;
    int32_t block;
    int32_t i; /* of the slots; -1 = the gradient */
};

/* Where a row ends: in its last block, which has the rest of its elements. */
struct row_end {
    int32_t last, rest;
};

static __device__ __forceinline__ struct row_end end_of_row(int64_t elements)
{
    const int64_t last = elements ? (elements - 1) / BLOCK_ELEMENTS : 0;

    return {(int32_t)last, (int32_t)(elements - last * BLOCK_ELEMENTS)};
}

/* The tasks of a receiver's warp. N elements are read at once, and written at once to the slots;
 * rows of any alignment, N = 1, are written into the box and go from there to the slots. */
template <typename T, int N> struct grad_receiver {
    typedef typename T::sum Sum;

    const struct mover<false> &m;
    struct slot_list<T> &list;
    const bool waits, stays;     /* as in receiver */
    const int64_t most;          /* records of all sources, as if all had as many */
    const struct extent forward; /* all rows that combine was given */
    const struct row_end ends;
    struct grad_cursor next;
    kept_grad<T, N> grad;

    __device__ __forceinline__ int32_t elements_of(int32_t block) const
    {
        return block == ends.last ? ends.rest : BLOCK_ELEMENTS;
    }

    __device__ __forceinline__ bool multiplies() const
    {
        return m.a.recv_weights != NULL;
    }

    __device__ __forceinline__ const char *grad_of(struct epx_wire_record *record,
                                                   int32_t source) const
    {
        if (waits && source == m.a.comm.rank)
            return m.a.rows + record->token * m.a.row_bytes;
        if (stays)
            return m.a.recv + list.slot[0] * m.a.row_bytes;
        return staged_row(m.a, m.a.comm.rank, source, record->token);
    }

    /* Waits for all slices of a row, a lane each. */
    __device__ __forceinline__ bool await_row(struct epx_wire_record *record, int32_t source) const
    {
        bool ok = true;

        if (!waits || source == m.a.comm.rank)
            return true;
        for (int32_t s = lane_id(); s < m.a.movers.slices.num; s += EPX_WARP)
            ok = ok && await_slice(m.a, m.x, source, record->token, s);
        return acquire_progress(m.a.comm, ok);
    }

    __device__ __forceinline__ void list_slots(struct epx_wire_record *record)
    {
        const struct epx_wire_pair *pairs = epx_wire_pairs(record);

        __syncwarp();
        for (int32_t i = lane_id(); i < next.num; i += EPX_WARP) {
            list.slot[i] = pairs[i].slot;
            list.weight[i] = m.a.weights ? m.a.weights[pairs[i].slot] : 1;
        }
        __syncwarp();
    }

    /* Finds the next record that has slots. */
    __device__ bool find_record()
    {
        int32_t source;

        for (;;) {
            claim_next(m.a.comm, next.record);
            if (next.record.task >= most)
                return false;
            struct epx_wire_record *record = record_in_turn(m.a, 0, next.record.task, source);

            if (record && record->num_slots) {
                next.num = record->num_slots;
                list_slots(record);
                next.grad = grad_of(record, source);
                return await_row(record, source);
            }
        }
    }

    /* The box behind this one has the next slots, or the next block. */
    __device__ __forceinline__ void step(int32_t num)
    {
        next.i += num;
        if (next.i < next.num)
            return;
        next.i = -1;
        if (++next.block <= ends.last)
            return;
        next.block = 0;
        next.num = 0;
    }

    /* Where a piece is loaded from; one of a slot that is not multiplied stays empty, and lies as
     * far behind a multiple of 16 as the slot. */
    __device__ __forceinline__ const char *source(int32_t i) const
    {
        const int64_t ahead = next.block * (int64_t)(BLOCK_ELEMENTS * sizeof(T));

        if (i < 0)
            return next.grad + ahead;
        return (multiplies() ? m.a.forward : m.a.recv) + list.slot[i] * m.a.row_bytes + ahead;
    }

    __device__ __forceinline__ char *piece_in(int32_t box, int32_t p) const
    {
        return data_in(m.boxes, box) + p * PIECE_ROOM<T>;
    }

    /* The whole warp: the pieces of a box, of which each lane knows where one is loaded from. */
    __device__ __forceinline__ void load_odd(int32_t box, int32_t num, const char *from,
                                             int64_t bytes)
    {
        for (int32_t p = 0; p < num; p++) {
            const char *piece = (const char *)__shfl_sync(~0u, (unsigned long long)from, p);
            const int64_t at = p * PIECE_ROOM<T>;

            if (next.i + p < 0)
                load_piece(m.boxes, box, at + misalignment(piece), piece, bytes);
            else if (multiplies())
                load_words(m.boxes, box, at, piece, bytes, forward);
        }
    }

    /* The whole warp: each of its first lanes has a piece of the box. */
    __device__ __forceinline__ void load(int32_t box, int32_t num, const char *from)
    {
        const int32_t bytes = elements_of(next.block) * (int32_t)sizeof(T);
        const bool is_loaded = lane_id() < num && (multiplies() || next.i + lane_id() < 0);

        if (N > 1)
            load_whole_words(m.boxes, box, piece_in(box, lane_id()), from, is_loaded ? bytes : 0);
        else
            load_odd(box, num, from, bytes);
        end_loads(m.boxes, box);
    }

    __device__ bool begin(int32_t box)
    {
        struct grad_block<T> &label = label_of<struct grad_block<T>>(m.boxes, box);
        const char *from = NULL;

        if (!next.num && !find_record())
            return false;
        const int32_t left = next.num - next.i;
        const int32_t num = left < PIECES_OF_BOX<T> ? left : PIECES_OF_BOX<T>;

        if (lane_id() == 0) {
            label.block = next.block;
            label.first = next.i;
            label.num = num;
        }
        if (lane_id() < num) {
            const int32_t i = next.i + lane_id();

            from = source(i);
            label.slot[lane_id()] = i < 0 ? 0 : list.slot[i];
            label.weight[lane_id()] = i < 0 ? 1 : list.weight[i];
            if (N == 1)
                label.odd[lane_id()] = misalignment(from);
        }
        load(box, num, from);
        step(num);
        return true;
    }

    /* The whole warp: the elements of a piece; those of any alignment are a whole block, with zeros
     * behind the row's end, so that none is looked at for whether it is of the row. */
    __device__ __forceinline__ void load_box(T *in, int32_t num, struct block_part<T, N> &part)
    {
        if (N == 1 && num < BLOCK_ELEMENTS) {
            for (int32_t i = num + lane_id(); i < BLOCK_ELEMENTS; i += EPX_WARP)
                in[i] = {};
            end_writes();
        }
        load_block<T, N>(in, N == 1 ? BLOCK_ELEMENTS : num, part);
    }

    /* The whole warp: loads a block of a gradient, to keep it for its slots. */
    __device__ __forceinline__ void load_grad(T *in, int32_t num)
    {
        if constexpr (widens<T>) {
            struct block_part<T, N> part;

            load_box(in, num, part);
            keep_block(part, m.a.weights != NULL, grad);
        } else {
            load_box(in, num, grad);
        }
    }

    /* One lane: keeps the sum of a slot's products over the blocks of its row. */
    __device__ __forceinline__ void add_dot(const struct grad_block<T> &label, int32_t p, Sum dot)
    {
        const int32_t i = label.first + p;

        if (p >= label.num || i < 0)
            return;
        dot = add(label.block ? list.dot[i] : 0, dot);
        list.dot[i] = dot;
        if (label.block == ends.last)
            m.a.recv_weights[label.slot[p]] = (float)dot;
    }

    /* The whole warp: adds its lanes' shares of the products of a box. */
    __device__ __forceinline__ void add_dots(const struct grad_block<T> &label,
                                             const Sum share[PIECES_OF_BOX<T>])
    {
        if constexpr (PIECES_OF_BOX<T> == SUMS_AT_ONCE) {
            const Sum dot = sum_three_shares<Sum, N>(share);

            if (is_first_with_sum<N>())
                add_dot(label, sum_of_thread<N>(), dot);
        } else {
            const Sum dot = sum_shares<Sum, N>(share[0]);

            if (lane_id() == 0)
                add_dot(label, 0, dot);
        }
    }

    /* The whole warp: the block times the weight of a slot to `to`; returns this lane's share of
     * its product with the row of the slot. */
    template <typename Grad>
    __device__ __forceinline__ Sum scale(const Grad &block, int32_t num, T *in,
                                         const struct scaled_slot<T> &to)
    {
        struct block_part<T, N> forward;

        if (!multiplies()) {
            store_block<T, N>(block, to);
            return 0;
        }
        load_box(in, num, forward);
        return store_and_multiply<T, N>(block, forward, to);
    }

    /* The whole warp: scales the block of the gradient that is kept, as scale does. */
    __device__ __forceinline__ Sum scale_kept(int32_t num, T *in, const struct scaled_slot<T> &to)
    {
        if constexpr (!widens<T>)
            return scale(grad, num, in, to);
        else if (to.weighted)
            return scale(kept_part<T, N, true>{grad}, num, in, to);
        else
            return scale(kept_part<T, N, false>{grad}, num, in, to);
    }

    /* The whole warp: scales the block into a slot, of any alignment through the box. */
    __device__ __forceinline__ Sum scale_into_slot(const struct grad_block<T> &label, int32_t p,
                                                   int32_t num, T *in)
    {
        const bool weighted = m.a.weights != NULL;
        char *out = m.a.recv + label.slot[p] * m.a.row_bytes +
                    label.block * (int64_t)(BLOCK_ELEMENTS * sizeof(T));

        if constexpr (N > 1)
            return scale_kept(num, in, {(T *)(void *)out, num, label.weight[p], weighted});
        Sum share = scale_kept(num, in, {in, BLOCK_ELEMENTS, label.weight[p], weighted});

        store_written(out, (const char *)(const void *)in, num * (int64_t)sizeof(T));
        return share;
    }

    /* The whole warp: empties a piece; returns this lane's share of its product. */
    __device__ __forceinline__ Sum empty_piece(int32_t box, const struct grad_block<T> &label,
                                               int32_t p)
    {
        T *in = (T *)(void *)(piece_in(box, p) + (N > 1 ? 0 : label.odd[p]));
        const int32_t num = elements_of(label.block);

        if (label.first + p >= 0) {
            if (N > 1 && num == BLOCK_ELEMENTS) /* code of its own: lanes need not look */
                return scale_into_slot(label, p, BLOCK_ELEMENTS, in);
            return scale_into_slot(label, p, num, in);
        }
        load_grad(in, num);
        return 0;
    }

    __device__ void end(int32_t box)
    {
        const struct grad_block<T> &label = label_of<struct grad_block<T>>(m.boxes, box);
        Sum share[PIECES_OF_BOX<T>] = {};

        await_box(m.boxes, box);
        const int32_t num = label.num;

#pragma unroll 1
        for (int32_t p = 0; p < num; p++) {
            const Sum here = empty_piece(box, label, p);

#pragma unroll
            for (int32_t i = 0; i < PIECES_OF_BOX<T>; i++)
                share[i] = i == p ? here : share[i];
        }
        if (multiplies() && label.first + num > 0)
            add_dots(label, share);
        end_stores();
    }
};

template <typename T, int N>
static __device__ void take_grads(const struct mover<false> &m, struct slot_list<T> &list,
                                  bool waits, bool stays)
{
    const int64_t most = (int64_t)most_records(m.a, 0) * m.a.comm.num_ranks;
    const int64_t bytes = *m.a.plan.view.num_rows * m.a.row_bytes;
    struct grad_receiver<T, N> receiver = {
        m, list, waits, stays, most, {m.a.forward, bytes},
            end_of_row(m.a.row_bytes / (int64_t)sizeof(T)),
        {
            no_task_of(m.crew, &m.a.comm.state->taken), 0, NULL, 0, -1
        }
    };

    do_tasks(receiver, m.boxes);
    await_stores<0>();
}

#endif
