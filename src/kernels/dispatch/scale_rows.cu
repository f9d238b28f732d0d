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
#include "kernels/protocol/records.cuh"

enum {
    SUM_LANES = 256,
    LANE_ELEMENTS = 4,
    SCALING_THREADS = 256,
    SCALING_WARPS = SCALING_THREADS / EPX_WARP,
    SCALING_BLOCKS_PER_SM = 2,
    MOST_SCALING_BLOCKS = 2048
};

/* The slots of the record that a warp works on; in shared memory. */
template <typename T> struct slot_list {
    int32_t num;
    int32_t slot[EPX_MAX_TOP_K];
    float weight[EPX_MAX_TOP_K];
    typename T::sum dot[EPX_MAX_TOP_K]; /* products of the blocks so far */
};

/*
 * What a thread has of a block of elements, loaded N at a time. Element e of the block belongs to
 * lane e % 256. A thread has the same lanes in each 256 elements: its pack p begins at lane
 * (p * 32 + thread) * N.
 */
template <typename T, int N> struct block_part {
    static constexpr int PACKS = SUM_LANES / (EPX_WARP * N);
    pack<T, N> data[LANE_ELEMENTS][PACKS];
};

/* Where this thread's pack p begins in the j-th 256 elements of the block that begins at first. */
template <int N> static __device__ __forceinline__ int64_t element_of(int64_t first, int j, int p)
{
    return first + j * SUM_LANES + (p * EPX_WARP + lane_id()) * N;
}

/* Loads zeros where the row has ended: they add nothing. */
template <typename T, int N>
static __device__ __forceinline__ void load_block(const T *row, int64_t first, int64_t elements,
                                                  struct block_part<T, N> &part)
{
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++)
#pragma unroll
        for (int p = 0; p < part.PACKS; p++) {
            int64_t i = element_of<N>(first, j, p);

            part.data[j][p] = {};
            if (i < elements)
                part.data[j][p] = *(const pack<T, N> *)(const void *)(row + i);
        }
}

/* Sums the lanes as a binary tree: lane l adds lane l + w, for w = 128, 64, ... 1. */
template <typename Sum, int N, int PACKS>
static __device__ __forceinline__ Sum sum_lanes(Sum lane[PACKS][N])
{
#pragma unroll
    for (int w = PACKS / 2; w; w /= 2)
#pragma unroll
        for (int p = 0; p < w; p++)
#pragma unroll
            for (int n = 0; n < N; n++)
                lane[p][n] = add(lane[p][n], lane[p + w][n]);
#pragma unroll
    for (int w = EPX_WARP / 2; w; w /= 2)
#pragma unroll
        for (int n = 0; n < N; n++)
            lane[0][n] = add(lane[0][n], __shfl_down_sync(~0u, lane[0][n], (unsigned)w));
#pragma unroll
    for (int w = N / 2; w; w /= 2)
#pragma unroll
        for (int n = 0; n < w; n++)
            lane[0][n] = add(lane[0][n], lane[0][n + w]);
    return lane[0][0];
}

/* The dot product of one block; thread 0 gets it. */
template <typename T, int N>
static __device__ __forceinline__ typename T::sum dot_of_block(const struct block_part<T, N> &a,
                                                               const struct block_part<T, N> &b)
{
    const int PACKS = block_part<T, N>::PACKS;
    typename T::sum lane[PACKS][N];

#pragma unroll
    for (int p = 0; p < PACKS; p++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            lane[p][n] = 0;
#pragma unroll
            for (int j = 0; j < LANE_ELEMENTS; j++)
                lane[p][n] = add(lane[p][n], mul(T::load(a.data[j][p].element[n]),
                                                 T::load(b.data[j][p].element[n])));
        }
    return sum_lanes<typename T::sum, N, PACKS>(lane);
}

template <typename T, int N>
static __device__ __forceinline__ void store_block(const struct block_part<T, N> &grad,
                                                   float weight, bool weighted, int64_t first,
                                                   int64_t elements, T *row)
{
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++)
#pragma unroll
        for (int p = 0; p < grad.PACKS; p++) {
            int64_t i = element_of<N>(first, j, p);
            pack<T, N> out = grad.data[j][p];

#pragma unroll
            for (int n = 0; weighted && n < N; n++)
                out.element[n] = T::store(mul((typename T::sum)weight, T::load(out.element[n])));
            if (i < elements)
                *(pack<T, N> *)(void *)(row + i) = out;
        }
}

/* Scales a row into all slots of its record, block by block: each block of what came lies in the
 * first slot until that slot is written. */
template <typename T, int N>
static __device__ void scale_slots(const struct epx_dispatch_rows &a, struct slot_list<T> &list)
{
    int64_t elements = a.row_bytes / (int64_t)sizeof(T);
    const T *forward_rows = a.recv_weights ? (const T *)(const void *)a.forward : NULL;
    T *rows = (T *)(void *)a.recv;

    for (int64_t first = 0; first < elements; first += SUM_LANES * LANE_ELEMENTS) {
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
    bool aligned =
        (misalignment(a.recv) | misalignment(a.forward) | ((uint32_t)a.row_bytes & 15u)) == 0;

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
        zero_padding(a.plan, a.recv, a.row_bytes, a.recv_weights);
        zero_unused(a, a.recv, a.row_bytes, a.recv_weights);
    }
    if (!is_last_block(a.comm) || threadIdx.x)
        return;
    if (on)
        count_route_rows(a.comm, a.plan, a.plan.send_rows, a.row_bytes);
    end_operation(a.comm, *a.plan.view.arrived_rows);
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
