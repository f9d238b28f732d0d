/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scale_rows.cu - after dispatch_rows, in combine backward: a row of gradients, raw in its first
 * slot, times the weight of each of its slots; the dot products with the rows that combine was
 * given; zeros for padding.
 * Work: reads the rows that came and as many forward rows as slots, writes the slots. Order: dot
 * products in blocks of 1024 elements: 256 lanes, a binary tree, blocks in order (epx(7)).
 * Launch: the whole device, a block a record, waits for nothing; ends the operation.
 */
#include "records.cuh"

enum { LANES = 256, LANE_ELEMENTS = 4, MOST_SCALING_BLOCKS = 2048 };

/* lane[0] = the lanes' sum as a binary tree. */
template <typename Sum> static __device__ Sum sum_lanes(Sum mine, Sum *lane)
{
    Sum sum;

    lane[threadIdx.x] = mine;
    for (int32_t w = LANES / 2; w; w /= 2) {
        __syncthreads();
        if ((int32_t)threadIdx.x < w)
            lane[threadIdx.x] = add(lane[threadIdx.x], lane[threadIdx.x + w]);
    }
    __syncthreads();
    sum = lane[0];
    __syncthreads();
    return sum;
}

/* One block of elements of one slot; returns its part of the dot product. */
template <typename T>
static __device__ typename T::sum scale_elements(const T *grad, const T *forward, float weight,
                                                 bool weighted, int64_t first, int64_t elements,
                                                 T *out)
{
    typename T::sum dot = 0;

#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++) {
        int64_t i = first + j * LANES + threadIdx.x;

        if (i >= elements)
            break;
        if (forward)
            dot = add(dot, mul(T::load(grad[j]), T::load(forward[i])));
        out[i] = weighted ? T::store(mul((typename T::sum)weight, T::load(grad[j]))) : grad[j];
    }
    return dot;
}

/* All slots of a record, block by block: its first slot holds what came until it is written. */
template <typename T>
static __device__ void scale_record(const struct epx_dispatch_rows &a,
                                    struct epx_wire_record *record)
{
    __shared__ typename T::sum lane[LANES], dots[EPX_MAX_TOP_K];
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    int64_t elements = a.row_bytes / (int64_t)sizeof(T);
    T *rows = (T *)(void *)a.recv;

    for (int32_t i = (int32_t)threadIdx.x; i < record->num_slots; i += LANES)
        dots[i] = 0;
    for (int64_t first = 0; first < elements; first += LANES * LANE_ELEMENTS) {
        T grad[LANE_ELEMENTS];

        for (int j = 0; j < LANE_ELEMENTS; j++)
            if (first + j * LANES + threadIdx.x < elements)
                grad[j] = rows[pairs[0].slot * elements + first + j * LANES + threadIdx.x];
        for (int32_t i = 0; i < record->num_slots; i++) {
            int64_t slot = pairs[i].slot;
            const T *forward = a.recv_weights ? (const T *)(const void *)a.forward : NULL;
            typename T::sum dot = scale_elements<T>(
                grad, forward ? forward + slot * elements : NULL, a.weights ? a.weights[slot] : 1,
                a.weights != NULL, first, elements, rows + slot * elements);

            if (!a.recv_weights)
                continue;
            dot = sum_lanes(dot, lane);
            if (threadIdx.x == 0)
                dots[i] = first ? add(dots[i], dot) : dot;
        }
    }
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; a.recv_weights && i < record->num_slots; i += LANES)
        a.recv_weights[pairs[i].slot] = (float)dots[i];
    __syncthreads();
}

static __device__ void scale_any(const struct epx_dispatch_rows &a, struct epx_wire_record *record)
{
    if (a.datatype == EPX_BFLOAT16)
        scale_record<bfloat16>(a, record);
    else if (a.datatype == EPX_FLOAT16)
        scale_record<float16>(a, record);
    else if (a.datatype == EPX_FLOAT32)
        scale_record<float32>(a, record);
    else
        scale_record<float64>(a, record);
}

static __device__ void scale_records(const struct epx_dispatch_rows &a)
{
    char *records = a.plan.records[a.comm.rank];

    for (int64_t i = blockIdx.x;; i += gridDim.x) {
        struct row_source at = find_record(a.plan, a.comm.num_ranks, i);
        struct epx_wire_record *record;

        if (at.source == a.comm.num_ranks)
            return;
        record = epx_wire_record_at(&a.plan, records, at.source, at.row);
        if (record->num_slots)
            scale_any(a, record);
    }
}

static __global__ void __launch_bounds__(LANES)
    scale_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    bool on = is_on(a.comm);

    if (on) {
        scale_records(a);
        zero_padding(a.plan, a.recv, a.row_bytes, a.recv_weights);
    }
    if (!is_last_block(a.comm) || threadIdx.x)
        return;
    if (on)
        count_route_rows(a.comm, a.plan, a.plan.send_rows, a.row_bytes);
    end_operation(a.comm, *a.plan.num_rows);
}

int epx_launch_scale_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    int64_t records = (int64_t)args->plan.max_tokens * args->comm.num_ranks;
    const int64_t most = MOST_SCALING_BLOCKS;
    unsigned blocks = (unsigned)(records < most ? records : most);

    scale_rows<<<blocks ? blocks : 1, LANES, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

int epx_load_scale_rows(void)
{
    cudaFuncAttributes attributes;

    return epx_cuda_status(cudaFuncGetAttributes(&attributes, scale_rows));
}
