/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scale_rows.cu - after dispatch_rows, in combine backward: a row of gradients, raw in its first
 * slot, times the weight of each of its slots; the dot products with the rows that combine was
 * given; zeros for padding.
 * Work: reads the rows that came and as many forward rows as slots, writes the slots. Order: dot
 * products in blocks of 1024 elements: 256 lanes, a binary tree, blocks in order: see
 * EPX_Combine_backward(3).
 * Launch: the whole device, a warp a record, waits for nothing; ends the operation.
 */
#include "kernels/dispatch/scales.cuh"

enum { MOST_SCALING_BLOCKS = 2048 };

/* The slots of the record that a warp works on; in shared memory. */
template <typename T> struct slot_list {
    int32_t num;
    int32_t slot[EPX_MAX_TOP_K];
    float weight[EPX_MAX_TOP_K];
    typename T::sum dot[EPX_MAX_TOP_K]; /* products of the blocks so far */
};

/* Scales a row into all slots of its record, block by block: each block of what came lies in the
 * first slot until that slot is written. */
template <typename T, int N>
static __device__ void scale_slots(const struct epx_dispatch_rows &a, struct slot_list<T> &list)
{
    int64_t elements = a.row_bytes / (int64_t)sizeof(T);
    const T *forward_rows = a.recv_weights ? (const T *)(const void *)a.forward : NULL;
    T *rows = (T *)(void *)a.recv;

    for (int64_t first = 0; first < elements; first += BLOCK_ELEMENTS) {
        struct block_part<T, N> grad, forward;

        load_block<T, N>(rows + list.slot[0] * elements, first, elements, grad);
        for (int32_t i = 0; i < list.num; i++) {
            int64_t at = list.slot[i] * elements;

            if (forward_rows) {
                load_block<T, N>(forward_rows + at, first, elements, forward);
                typename T::sum dot = dot_of_block<T, N>(grad, forward);

                if (lane_id() == 0)
                    list.dot[i] = first ? add(list.dot[i], dot) : dot;
            }
            store_block<T, N>(grad, list.weight[i], a.weights != NULL, first, elements, rows + at);
        }
    }
}

template <typename T>
static __device__ void scale_record(const struct epx_dispatch_rows &a, bool aligned,
                                    struct epx_wire_record *record, struct slot_list<T> &list)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);

    if (lane_id() == 0)
        list.num = record->num_slots;
    for (int32_t i = lane_id(); i < record->num_slots; i += EPX_WARP) {
        list.slot[i] = pairs[i].slot;
        list.weight[i] = a.weights ? a.weights[pairs[i].slot] : 1;
        list.dot[i] = 0;
    }
    __syncwarp();
    if (aligned)
        scale_slots<T, 16 / sizeof(T)>(a, list);
    else
        scale_slots<T, 1>(a, list);
    __syncwarp();
    for (int32_t i = lane_id(); a.recv_weights && i < list.num; i += EPX_WARP)
        a.recv_weights[list.slot[i]] = (float)list.dot[i];
    __syncwarp();
}

template <typename T>
static __device__ void scale_records(const struct epx_dispatch_rows &a,
                                     const struct record_range &range, struct slot_list<T> &list)
{
    char *records = a.plan.records[a.comm.rank];
    bool aligned = rows_are_aligned(a, a.recv);

    for (int64_t i = global_warp(); i < range.num; i += num_global_warps()) {
        struct row_source at = find_in_range(range, i);
        struct epx_wire_record *record = epx_wire_record_at(&a.plan, records, at.source, at.row);

        if (record->num_slots)
            scale_record<T>(a, aligned, record, list);
    }
}

template <typename T>
static __global__ void __launch_bounds__(SCALING_THREADS, SCALING_BLOCKS_PER_SM)
    scale_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct record_range range;
    __shared__ struct slot_list<T> lists[SCALING_WARPS];
    bool on = is_on(a.comm);

    if (on) {
        find_range(a.plan, a.comm.num_ranks, a.plan.records[a.comm.rank], 0,
                   a.plan.shape.max_tokens, range);
        scale_records<T>(a, range, lists[threadIdx.x / EPX_WARP]);
        zero_padding(a.plan, a.recv, a.row_bytes, a.recv_weights, all_warps());
        zero_unused(a, a.recv, a.row_bytes, a.recv_weights, all_warps());
    }
    end_dispatch(a, on);
}

static void (*const kernels[NUM_ADDED_TYPES])(struct epx_dispatch_rows) =
    KERNELS_OF_TYPES(scale_rows);

int epx_launch_scale_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    int64_t records = (int64_t)args->plan.shape.max_tokens * args->comm.num_ranks;
    int64_t blocks = (records + SCALING_WARPS - 1) / SCALING_WARPS;
    const int64_t most = MOST_SCALING_BLOCKS;

    blocks = blocks < 1 ? 1 : blocks < most ? blocks : most;
    kernels[args->datatype - EPX_FLOAT16]<<<(unsigned)blocks, SCALING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels);
