/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grad_movers.cuh - the role of takers in move_grads; its senders are those of row_movers.cuh. A
 * taker's warp does one record after the other: it waits for the record's row of gradients, or reads
 * it from the user's memory if the token is this rank's own, and block by block of 1024 elements
 * scales it into every slot and multiplies it with the row that combine was given for the slot.
 * What it reads comes through boxes (boxes.cuh), so that several blocks are under way at once. The
 * first slot may be where the row came to: each block of it is read before it is written.
 */
#ifndef EPX_KERNELS_STREAMING_GRAD_MOVERS_CUH
#define EPX_KERNELS_STREAMING_GRAD_MOVERS_CUH

#include "kernels/dispatch/scales.cuh"
#include "kernels/streaming/row_movers.cuh"

/* What is in a box: a block of the gradient of a record's row, or of the row that combine was given
 * for one of its slots. */
struct grad_block {
    struct epx_wire_record *record;
    int64_t block;
    int32_t slot; /* the number of the slot in the record; -1 = the gradient */
    uint32_t odd; /* bytes by which the data is behind a multiple of 16 */
};

/* How far a taker's warp has read. */
struct grad_cursor {
    int64_t i;                      /* of the records that all takers share */
    struct epx_wire_record *record; /* NULL: the next one is to be found */
    const char *grad;
    int64_t block;
    int32_t slot;
};

/* The tasks of a taker's warp; N elements are read and written at once. */
template <typename T, int N> struct grad_taker {
    const struct mover<false> &m;
    typename T::sum *const dots; /* [slots of a record], shared: products of the blocks so far */
    const bool waits, stays;     /* as in taker */
    const int64_t most;          /* records of all sources, as if all had as many */
    struct grad_cursor next;
    struct block_part<T, N> grad;

    __device__ __forceinline__ int64_t elements() const
    {
        return m.a.row_bytes / (int64_t)sizeof(T);
    }

    __device__ __forceinline__ bool multiplies() const
    {
        return m.a.recv_weights != NULL;
    }

    __device__ __forceinline__ int64_t slot_of(struct epx_wire_record *record, int32_t i) const
    {
        return epx_wire_pairs(record)[i].slot;
    }

    __device__ __forceinline__ const char *grad_of(struct epx_wire_record *record,
                                                   int32_t source) const
    {
        const struct epx_rounds &rounds = m.a.rounds;

        if (waits && source == m.a.comm.rank)
            return m.a.rows + record->token * m.a.row_bytes;
        if (stays)
            return m.a.recv + slot_of(record, 0) * m.a.row_bytes;
        return m.a.plan.stage[m.a.comm.rank] +
               ((int64_t)source * rounds.tokens + record->token) * rounds.pitch;
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

    /* Finds the next record that has slots, from next.i on. */
    __device__ bool find_record()
    {
        int32_t source;

        for (; next.i < most; next.i += m.crew.num) {
            struct epx_wire_record *record = record_in_turn(m.a, 0, next.i, source);

            if (record && record->num_slots) {
                next.record = record;
                next.grad = grad_of(record, source);
                return await_row(record, source);
            }
        }
        return false;
    }

    /* The block in the next box is followed by that for the next slot, or by the next block. */
    __device__ __forceinline__ void step()
    {
        const int32_t slots = multiplies() ? next.record->num_slots : 0;

        if (++next.slot < slots)
            return;
        next.slot = -1;
        if ((++next.block) * BLOCK_ELEMENTS < elements())
            return;
        next.block = 0;
        next.record = NULL;
        next.i += m.crew.num;
    }

    __device__ bool begin(int64_t n)
    {
        const char *from;
        int64_t offset, bytes;

        if (!next.record && !find_record())
            return false;
        from = next.slot < 0 ? next.grad
                             : m.a.forward + slot_of(next.record, next.slot) * m.a.row_bytes;
        offset = next.block * BLOCK_ELEMENTS * (int64_t)sizeof(T);
        bytes = m.a.row_bytes - offset;
        bytes = bytes < BLOCK_ELEMENTS * (int64_t)sizeof(T) ? bytes
                                                            : BLOCK_ELEMENTS * (int64_t)sizeof(T);
        if (lane_id() == 0)
            label_of<struct grad_block>(m.boxes, n) = {next.record, next.block, next.slot,
                                                       misalignment(from + offset)};
        load_piece(m.boxes, n, 0, from + offset, bytes);
        end_loads(m.boxes, n);
        step();
        return true;
    }

    __device__ __forceinline__ void scale(int64_t first, int64_t slot) const
    {
        const float weight = m.a.weights ? m.a.weights[slot] : 1;

        store_block(grad, weight, m.a.weights != NULL, first, elements(),
                    (T *)(void *)m.a.recv + slot * elements());
    }

    /* The gradient's block, for all slots if nothing is multiplied. */
    __device__ __forceinline__ void end_grad(const struct grad_block &label, const T *in)
    {
        const int64_t first = label.block * BLOCK_ELEMENTS;

        load_block<T, N>(in, 0, elements() - first, grad);
        for (int32_t i = 0; !multiplies() && i < label.record->num_slots; i++)
            scale(first, slot_of(label.record, i));
    }

    __device__ __forceinline__ void end_slot(const struct grad_block &label, const T *in)
    {
        const int64_t first = label.block * BLOCK_ELEMENTS;
        const int64_t slot = slot_of(label.record, label.slot);
        struct block_part<T, N> forward;

        load_block<T, N>(in, 0, elements() - first, forward);
        typename T::sum dot = dot_of_block<T, N>(grad, forward);

        if (lane_id() == 0) {
            dot = first ? add(dots[label.slot], dot) : dot;
            dots[label.slot] = dot;
            if (first + BLOCK_ELEMENTS >= elements())
                m.a.recv_weights[slot] = (float)dot;
        }
        scale(first, slot);
    }

    __device__ void end(int64_t n)
    {
        const T *in;

        await_box(m.boxes, n);
        const struct grad_block label = label_of<struct grad_block>(m.boxes, n);

        in = (const T *)(const void *)(data_in(m.boxes, n) + label.odd);
        if (label.slot < 0)
            end_grad(label, in);
        else
            end_slot(label, in);
        __syncwarp();
    }
};

/* Where gradients lie, or other rows, all 16 bytes can be read and written at once. */
static __device__ __forceinline__ bool grads_are_aligned(const struct epx_dispatch_rows &a)
{
    return rows_are_aligned(a, a.rows);
}

template <typename T, int N>
static __device__ void take_grads(const struct mover<false> &m, typename T::sum *dots, bool waits,
                                  bool stays)
{
    const int64_t most = (int64_t)most_records(m.a, 0) * m.a.comm.num_ranks;
    struct grad_taker<T, N> taker = {
        m, dots, waits, stays, most,
        {
            m.crew.warp, NULL, NULL, 0, -1
        }
    };

    do_tasks(taker, m.boxes, INT64_MAX);
}

#endif
