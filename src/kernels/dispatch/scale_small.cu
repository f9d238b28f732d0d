/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scale_small.cu - a combine backward of few rows in two launches: gradients go into the bank of
 * every other rank that needs them; once they are there the whole device scales them into their
 * slots, which so few blocks as may wait for other ranks would take long to do. banks.cuh has the
 * protocol.
 * Work: as move_grads.cu; a gradient is read once for each of its slots. Order: the same, so the
 * bytes are too.
 * Launch: send_grads: phases.cuh; blocks that store, then blocks that wait.
 * scale_small, the whole device, a block a slot, waits for nothing and ends the operation.
 */
#include "kernels/dispatch/scales.cuh"
#include "kernels/dispatch/small_rows.cuh"
#include "kernels/dispatch/spreads.cuh"

enum { MOST_DOTS = 64, SLOT_BLOCKS = 132 * SCALING_BLOCKS_PER_SM };

/* Waits for all slices of all rows that come here, a lane each. */
static __device__ bool await_grads(const struct epx_dispatch_rows &a, const struct exchange &x,
                                   const struct record_range &range)
{
    const struct crew crew = crew_of(a.banks);
    const uint32_t slices = (uint32_t)a.banks.slices.num;
    char *records = a.plan.records[a.comm.rank],
         *bank = bank_on(a.comm, a.banks, x.epoch, a.comm.rank);
    bool ok = true;

    for (uint32_t i = (uint32_t)(crew.warp * EPX_WARP + lane_id());
         ok && i < (uint32_t)range.num * slices; i += (uint32_t)(crew.num * EPX_WARP)) {
        struct row_source at = find_in_range(range, i / slices);
        struct epx_wire_record *record = epx_wire_record_at(&a.plan, records, at.source, at.row);

        if (record->num_slots && at.source != a.comm.rank)
            ok = await_flag(a.comm,
                            flag_in(a.banks, bank, bank_row(a, at.source, record->token),
                                    (int32_t)(i % slices)),
                            x.epoch, at.source);
    }
    return acquire_words(a.comm, ok);
}

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    send_grads(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct record_range range;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    bool takes = !is_sender(a.banks);

    if (takes && is_last_warp())
        find_all_records(a.plan, a.comm.num_ranks, -1, range);
    begin_small(a.comm, a.banks, a.note, a.plan.outcome->code, x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (!takes && a.comm.num_ranks > 1 && a.plan.outcome->code == EPX_SUCCESS)
            store_small_rows<false>(a, x.epoch, lists[threadIdx.x / EPX_WARP]);
        if (takes && await_ready(a.comm, a.note, x, a.plan.outcome))
            all_content(a.comm, x, await_grads(a, x, range));
    }
    if (is_last_of_small(a.comm, a.banks, x, {a.note, a.plan.outcome, takes}))
        hand_over(a.comm, x, 0, false, NULL);
}

/* The gradient that goes into one slot, in shared memory. */
template <typename T> struct slot_work {
    const T *grad;
    int64_t slot; /* -1 = none */
    typename T::sum dot[MOST_DOTS];
};

/* One thread: the i-th pair of a record, if it has a slot. */
template <typename T>
static __device__ void find_work(const struct epx_dispatch_rows &a,
                                 const struct record_range &range, int64_t index, int32_t i,
                                 struct slot_work<T> &work)
{
    struct row_source at = find_in_range(range, index);
    struct epx_wire_record *record =
        epx_wire_record_at(&a.plan, a.plan.records[a.comm.rank], at.source, at.row);
    char *bank = bank_on(a.comm, a.banks, a.comm.state->epoch + 1, a.comm.rank);

    work.slot = i < record->num_slots ? epx_wire_pairs(record)[i].slot : -1;
    work.grad = (const T *)(const void *)row_that_came(a, bank, at.source, record->token);
}

/* The whole block: a gradient into its slot, each warp 1024 elements at a time. */
template <typename T, int N>
static __device__ void scale_slot(const struct epx_dispatch_rows &a, struct slot_work<T> &work)
{
    const int64_t elements = a.row_bytes / (int64_t)sizeof(T);
    const int64_t blocks = (elements + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS;
    const T *forward_row = (const T *)(const void *)a.forward + work.slot * elements;
    const float weight = a.weights ? a.weights[work.slot] : 1;
    T *row = (T *)(void *)a.recv + work.slot * elements;
    typename T::sum total = 0;

    for (int64_t done = 0; done < blocks; done += MOST_DOTS) {
        int32_t here = (int32_t)(blocks - done < MOST_DOTS ? blocks - done : MOST_DOTS);

        for (int32_t b = (int32_t)threadIdx.x / EPX_WARP; b < here; b += SCALING_WARPS) {
            int64_t first = (done + b) * BLOCK_ELEMENTS;
            int32_t num = elements_of_block(elements, first);
            struct block_part<T, N> grad, forward;

            load_block<T, N>(work.grad + first, num, grad);
            if (a.recv_weights) {
                load_block<T, N>(forward_row + first, num, forward);
                typename T::sum dot = dot_of_block<T, N>(grad, forward);

                if (lane_id() == 0)
                    work.dot[b] = dot;
            }
            store_block<T, N>(grad, weight, a.weights != NULL, num, row + first);
        }
        __syncthreads();
        for (int32_t b = 0; a.recv_weights && threadIdx.x == 0 && b < here; b++)
            total = done + b ? add(total, work.dot[b]) : work.dot[b];
        __syncthreads();
    }
    if (a.recv_weights && threadIdx.x == 0)
        a.recv_weights[work.slot] = (float)total;
}

/* Pairs of a record that have a slot of their own. */
static __host__ __device__ __forceinline__ int32_t
slots_of_record(const struct epx_plan_shape &shape)
{
    return shape.rank_major ? 1 : shape.top_k;
}

template <typename T>
static __device__ void scale_all_slots(const struct epx_dispatch_rows &a,
                                       const struct record_range &range, struct slot_work<T> &work)
{
    const int32_t width = slots_of_record(a.plan.shape);

    for (int64_t i = blockIdx.x; i < range.num * width; i += gridDim.x) {
        if (threadIdx.x == 0)
            find_work(a, range, i / width, (int32_t)(i % width), work);
        __syncthreads();
        if (work.slot >= 0 && rows_are_aligned(a, (const char *)work.grad))
            scale_slot<T, 16 / sizeof(T)>(a, work);
        else if (work.slot >= 0)
            scale_slot<T, 1>(a, work);
        __syncthreads();
    }
}

template <typename T>
static __global__ void __launch_bounds__(SCALING_THREADS, SCALING_BLOCKS_PER_SM)
    scale_small(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct record_range range;
    __shared__ struct slot_work<T> work;
    bool on;

    if (is_last_warp())
        find_all_records(a.plan, a.comm.num_ranks, -1, range);
    on = is_on(a.comm);
    if (on) {
        scale_all_slots<T>(a, range, work);
        zero_rest<false>(a, true, all_warps());
    }
    end_dispatch(a, on);
}

static void (*const kernels[NUM_ADDED_TYPES])(struct epx_dispatch_rows) =
    KERNELS_OF_TYPES(scale_small);

int epx_launch_scale_small(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    int64_t slots = (int64_t)args->plan.shape.max_tokens * args->comm.num_ranks *
                    slots_of_record(args->plan.shape);
    const int64_t most = SLOT_BLOCKS;
    unsigned blocks = (unsigned)(slots < 1 ? 1 : slots < most ? slots : most);

    if (launch_phase(small_launch(args->banks, stream), send_grads, *args))
        return EPX_ERR_CUDA;
    if (args->banks.phase == EPX_PHASE_SEND)
        return EPX_SUCCESS;
    kernels[args->datatype - EPX_FLOAT16]<<<blocks, SCALING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded_sends(send_grads), loaded(kernels);
