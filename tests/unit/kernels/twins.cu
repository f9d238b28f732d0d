/* SPDX-License-Identifier: BSD-3-Clause */
/* twins.cu - runs on the device what the host runs too; input and output are in host memory. */
#include "kernels/warp/sum_rows.cuh"

#include "unit/kernels/twins.h"

enum { STEP_THREADS = 256, MOST_STEP_BLOCKS = 256 };

static const char *text_of(cudaError_t error)
{
    return error == cudaSuccess ? NULL : cudaGetErrorString(error);
}

extern "C" const char *twin_lacks(void)
{
    int devices = 0;

    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1)
        return "no CUDA device";
    return NULL;
}

/* Makes a copy in device memory; NULL if that fails, and the error stays with CUDA. */
static char *upload(const void *from, size_t bytes)
{
    char *memory = NULL;

    if (cudaMalloc((void **)&memory, bytes + 1) != cudaSuccess ||
        cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice) != cudaSuccess)
        return NULL;
    return memory;
}

static const char *download(void *to, const char *from, size_t bytes)
{
    cudaError_t error = cudaGetLastError();

    if (error == cudaSuccess)
        error = cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
    return text_of(error);
}

static __global__ void run_steps(enum twin_step step, int64_t n, const uint64_t *in, uint64_t *out)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        twin_run(step, in + i * STEP_IN, out + i * STEP_OUT);
}

extern "C" const char *twin_run_on_device(enum twin_step step, int64_t n, const uint64_t *in,
                                          uint64_t *out)
{
    size_t out_bytes = (size_t)n * STEP_OUT * sizeof(*out);
    char *from = upload(in, (size_t)n * STEP_IN * sizeof(*in)), *to = upload(out, out_bytes);
    const char *error;

    if (from && to)
        run_steps<<<MOST_STEP_BLOCKS, STEP_THREADS>>>(step, n, (const uint64_t *)(const void *)from,
                                                      (uint64_t *)(void *)to);
    error = download(out, to, out_bytes);
    cudaFree(from);
    cudaFree(to);
    return error;
}

/* Lists the rows of a block for the only warp. */
static __device__ void list_rows(const struct twin_rows &rows, char *block, const float *weights,
                                 struct row_list &list)
{
    for (int32_t i = lane_id(); i < rows.num; i += EPX_WARP) {
        list.row[i] = block + rows.shift + i * rows.row_bytes;
        list.weight[i] = weights[i];
    }
    __syncwarp();
}

/* Sums by nodes: the nodes take the place of the weights. */
template <typename T>
static __global__ void sum_by_node(struct twin_rows rows, char *from, const float *words, char *to)
{
    const int32_t *nodes = (const int32_t *)(const void *)words;
    __shared__ struct row_list list;

    list_rows(rows, from, words, list);
    for (int32_t i = lane_id(); i < rows.num; i += EPX_WARP)
        list.node[i] = nodes[i];
    __syncwarp();
    sum_nodes<T, T>({{}, 0}, {list, rows.num, nodes[rows.num]}, rows.row_bytes / (int64_t)sizeof(T),
                    to + rows.shift);
}

template <typename T>
static __global__ void sum(struct twin_rows rows, char *from, const float *weights, char *to)
{
    __shared__ struct row_list list;

    list_rows(rows, from, weights, list);
    sum_rows<T, T>(list, rows.num, rows.weighted, rows.row_bytes / (int64_t)sizeof(T),
                   to + rows.shift);
}

/* Packs are shifted into place, two a lane. */
template <typename T>
static __global__ void sum_shifted(struct twin_rows rows, char *from, const float *weights,
                                   char *to)
{
    const int64_t elements = rows.row_bytes / (int64_t)sizeof(T);
    __shared__ struct row_list list;

    list_rows(rows, from, weights, list);
    if (rows.num == 0)
        zero_row(to + rows.shift, rows.row_bytes);
    else
        rows.weighted ? sum_odd_rows<T, T, true, 2>(list, rows.num, elements, to + rows.shift)
                      : sum_odd_rows<T, T, false, 2>(list, rows.num, elements, to + rows.shift);
}

static __global__ void store(struct twin_rows rows, char *from, const float *weights, char *to)
{
    __shared__ struct row_list list;

    list_rows(rows, to, weights, list);
    store_row(from + rows.shift, list, rows.num, rows.row_bytes);
}

typedef void row_kernel(struct twin_rows rows, char *from, const float *weights, char *to);

static const char *run_warp(row_kernel *kernel, const struct twin_rows *rows, const void *words,
                            int num_words)
{
    char *from = upload(rows->from, rows->from_bytes), *to = upload(rows->to, rows->to_bytes);
    char *there = upload(words, (size_t)num_words * sizeof(float));
    const char *error;

    if (from && to && there)
        kernel<<<1, EPX_WARP>>>(*rows, from, (const float *)(const void *)there, to);
    error = download(rows->to, to, rows->to_bytes);
    cudaFree(from);
    cudaFree(to);
    cudaFree(there);
    return error;
}

extern "C" const char *twin_sum_rows(const struct twin_rows *rows)
{
    static row_kernel *const kernels[2][NUM_ADDED_TYPES] = {KERNELS_OF_TYPES(sum),
                                                            KERNELS_OF_TYPES(sum_shifted)};
    row_kernel *kernel = kernels[rows->shifts][rows->datatype - EPX_FLOAT16];

    return run_warp(kernel, rows, rows->weights, rows->num);
}

extern "C" const char *twin_sum_nodes(const struct twin_rows *rows)
{
    static row_kernel *const kernels[NUM_ADDED_TYPES] = KERNELS_OF_TYPES(sum_by_node);

    return run_warp(kernels[rows->datatype - EPX_FLOAT16], rows, rows->nodes, rows->num + 1);
}

extern "C" const char *twin_store_row(const struct twin_rows *rows)
{
    return run_warp(store, rows, rows->weights, rows->num);
}
