/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grad_movers.cuh - the role of takers in move_grads; its senders are those of row_movers.cuh. A
 * taker's warp does one record after the other: it waits for the record's row of gradients, or
 * reads it from the user's memory if the token is this rank's own, and block by block of 1024
 * elements scales it into every slot and multiplies it with the row that combine was given for the
 * slot. What it reads comes through boxes (boxes.cuh), so that several blocks are under way at
 * once. The first slot may be where the row came to: each block of it is read before it is written.
 */
#ifndef EPX_KERNELS_STREAMING_GRAD_MOVERS_CUH
#define EPX_KERNELS_STREAMING_GRAD_MOVERS_CUH

#include "kernels/dispatch/scales.cuh"
#include "kernels/streaming/row_takers.cuh"

/* What is in a box: a block of the gradient of a record's row, or of the row that combine was given
 * for one of its slots. */
struct alignas(16) grad_block {
    int32_t block;
    int32_t i;    /* of the record's slots; -1 = the gradient */
    int32_t slot; /* the row */
    float weight;
    uint32_t odd; /* bytes by which the data is behind a multiple of 16; rows of any alignment */
};

/* The slots of a record; in shared memory, one list a warp. */
template <typename T> struct slot_list {
    int32_t slot[EPX_MAX_TOP_K];
    float weight[EPX_MAX_TOP_K];
    typename T::sum dot[EPX_MAX_TOP_K]; /* products of the blocks so far */
};

/* How far a taker's warp has read. */
struct grad_cursor {
    struct task_claims record; /* of those that all takers share */
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

/* The tasks of a taker's warp. N elements are read at once, and written at once to the slots; rows
 * of any alignment, N = 1, are written into the box and go from there to the slots. */
template <typename T, int N> struct grad_taker {
    const struct mover<false> &m;
    struct slot_list<T> &list;
    const bool waits, stays;     /* as in taker */
    const int64_t most;          /* records of all sources, as if all had as many */
    const struct extent forward; /* all rows that combine was given */
    const struct row_end ends;
    struct grad_cursor next;
    struct block_part<T, N> grad;

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

    /* Whether the row of a record has come, or there is none. */
    __device__ bool is_here(int64_t i) const
    {
        int32_t source;
        const struct epx_wire_record *record = record_in_turn(m.a, 0, i, source);
        bool ok = true;

        if (!waits || source == m.a.comm.rank || !record || !record->num_slots)
            return true;
        for (int32_t s = lane_id(); s < m.a.movers.slices.num; s += EPX_WARP)
            ok = ok && slice_has_come(m.a, m.x, source, record->token, s);
        return __all_sync(~0u, ok);
    }

    /* Finds the next record that has slots. */
    __device__ bool find_record()
    {
        int32_t source;

        for (;;) {
            next_task(m.a.comm, next.record, most, [&](int64_t i) { return is_here(i); });
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

    /* The box behind this one has the next slot, or the next block. */
    __device__ __forceinline__ void step()
    {
        if (++next.i < next.num)
            return;
        next.i = -1;
        if (++next.block <= ends.last)
            return;
        next.block = 0;
        next.num = 0;
    }

    /* Where a box is loaded from; one of a slot that is not multiplied stays empty, and lies as far
     * behind a multiple of 16 as the slot. */
    __device__ __forceinline__ const char *source() const
    {
        if (next.i < 0)
            return next.grad;
        return (multiplies() ? m.a.forward : m.a.recv) + list.slot[next.i] * m.a.row_bytes;
    }

    __device__ __forceinline__ void load(int32_t box, const char *from, int64_t bytes)
    {
        if (next.i >= 0 && !multiplies())
            return;
        if (N > 1)
            load_whole_words(m.boxes, box, from, bytes);
        else if (next.i >= 0)
            load_words(m.boxes, box, from, bytes, forward);
        else
            load_piece(m.boxes, box, misalignment(from), from, bytes);
    }

    __device__ bool begin(int32_t box)
    {
        struct grad_block &label = label_of<struct grad_block>(m.boxes, box);
        const char *from;

        if (!next.num && !find_record())
            return false;
        from = source() + next.block * (int64_t)(BLOCK_ELEMENTS * sizeof(T));
        if (lane_id() == 0) {
            label.block = next.block;
            label.i = next.i;
            label.slot = next.i < 0 ? 0 : list.slot[next.i];
            label.weight = next.i < 0 ? 1 : list.weight[next.i];
            if (N == 1)
                label.odd = misalignment(from);
        }
        load(box, from, elements_of(next.block) * (int64_t)sizeof(T));
        end_loads(m.boxes, box);
        step();
        return true;
    }

    /* The whole warp: the elements of a box; those of any alignment are a whole block, with zeros
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

    /* Lane 0: keeps the sum of a slot's products over the blocks of its row. */
    __device__ __forceinline__ void add_dot(const struct grad_block &label, typename T::sum dot)
    {
        dot = label.block ? add(list.dot[label.i], dot) : dot;
        list.dot[label.i] = dot;
        if (label.block == ends.last)
            m.a.recv_weights[label.slot] = (float)dot;
    }

    /* The whole warp: the block times the weight of a slot to `to`, and its product with the row of
     * the slot. */
    __device__ __forceinline__ void scale(const struct grad_block &label, int32_t num, T *in,
                                          const struct scaled_slot<T> &to)
    {
        struct block_part<T, N> forward;

        if (!multiplies()) {
            store_block(grad, to);
            return;
        }
        load_box(in, num, forward);
        typename T::sum dot = store_and_multiply(grad, forward, to);

        if (lane_id() == 0)
            add_dot(label, dot);
    }

    /* The whole warp: scales the block into its slot, of any alignment through the box. */
    __device__ __forceinline__ void scale_into_slot(const struct grad_block &label, int32_t num,
                                                    T *in)
    {
        const bool weighted = m.a.weights != NULL;
        char *out = m.a.recv + label.slot * m.a.row_bytes +
                    label.block * (int64_t)(BLOCK_ELEMENTS * sizeof(T));

        if constexpr (N > 1) {
            scale(label, num, in, {(T *)(void *)out, num, label.weight, weighted});
        } else {
            scale(label, num, in, {in, BLOCK_ELEMENTS, label.weight, weighted});
            store_written(out, (const char *)(const void *)in, num * (int64_t)sizeof(T));
        }
    }

    __device__ void end(int32_t box)
    {
        await_box(m.boxes, box);
        const struct grad_block label = label_of<struct grad_block>(m.boxes, box);
        T *in = (T *)(void *)(data_in(m.boxes, box) + (N > 1 ? 0 : label.odd));
        const int32_t num = elements_of(label.block);

        if (label.i < 0)
            load_box(in, num, grad);
        else if (N > 1 && num == BLOCK_ELEMENTS) /* code of its own, in which lanes need not look */
            scale_into_slot(label, BLOCK_ELEMENTS, in);
        else
            scale_into_slot(label, num, in);
        end_stores();
    }
};

template <typename T, int N>
static __device__ void take_grads(const struct mover<false> &m, struct slot_list<T> &list,
                                  bool waits, bool stays)
{
    const int64_t most = (int64_t)most_records(m.a, 0) * m.a.comm.num_ranks;
    const int64_t bytes = *m.a.plan.view.num_rows * m.a.row_bytes;
    struct grad_taker<T, N> taker = {
        m, list, waits, stays, most, {m.a.forward, bytes},
            end_of_row(m.a.row_bytes / (int64_t)sizeof(T)),
        {
            no_task_of(m.crew, &m.a.comm.state->taken), 0, NULL, 0, -1
        }
    };

    do_tasks(taker, m.boxes);
    await_stores<0>();
}

#endif
