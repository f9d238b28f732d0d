/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_kernels.cu - kernels that the benchmark compares with: copies, computation, stores. */
#include "epx_perf/space/perf_kernels.h"

#include "epx_perf/space/perf_must.h"

enum { COPY_BLOCKS = 1056, COPY_THREADS = 512, BLOCK_THREADS = 1024, UNIT_STEPS = 64 };

/* Copies tokens to rows: each word at home is read once and stored as often as there are rows for
 * it. */
static __global__ void __launch_bounds__(COPY_THREADS)
    spread_words(const uint4 *home, int64_t home_words, uint4 *rows, int64_t words)
{
    for (int64_t h = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; h < home_words;
         h += (int64_t)gridDim.x * blockDim.x) {
        uint4 word = home[h];

        for (int64_t i = h; i < words; i += home_words)
            rows[i] = word;
    }
}

/* Copies rows to tokens: all rows are read, and each word at home is written once. */
static __global__ void __launch_bounds__(COPY_THREADS)
    gather_words(uint4 *home, int64_t home_words, const uint4 *rows, int64_t words)
{
    for (int64_t h = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; h < home_words;
         h += (int64_t)gridDim.x * blockDim.x) {
        uint4 sum = {0, 0, 0, 0};

#pragma unroll 4
        for (int64_t i = h; i < words; i += home_words) {
            uint4 word = rows[i];

            sum = {sum.x ^ word.x, sum.y ^ word.y, sum.z ^ word.z, sum.w ^ word.w};
        }
        home[h] = sum;
    }
}

/* Arithmetic in registers that no compiler can leave out. */
static __global__ void __launch_bounds__(BLOCK_THREADS) compute_units(int64_t units, float *never)
{
    float x = (float)threadIdx.x;

    for (int64_t unit = 0; unit < units; unit++)
#pragma unroll
        for (int i = 0; i < UNIT_STEPS; i++)
            x = x * 0.5f + 1.0f;
    if (x < 0)
        *never = x;
}

/* Stores rows, with a warp for each; rows for the peers take turns, and each rank starts with
 * another peer. */
static __global__ void __launch_bounds__(BLOCK_THREADS)
    store_rows(const __grid_constant__ struct perf_stores a)
{
    const int lane = (int)threadIdx.x % 32, warps = BLOCK_THREADS / 32;
    const uint4 word = {threadIdx.x, blockIdx.x, 0, 0};
    int64_t peers = a.size - 1;

    for (int64_t i = (int64_t)blockIdx.x * warps + threadIdx.x / 32; i < a.rows * peers;
         i += (int64_t)gridDim.x * warps) {
        int peer = (int)((a.rank + 1 + i % peers) % a.size);
        uint4 *row = (uint4 *)(a.to[peer] + i / peers * PERF_STORE_ROW_BYTES);

#pragma unroll 4
        for (int w = lane; w < PERF_STORE_ROW_BYTES / 16; w += 32)
            row[w] = word;
    }
}

/* Copies whole words of 16 bytes; a shorter last word is left out. */
void perf_launch_copy(const struct perf_copy *copy, cudaStream_t stream)
{
    int64_t home = copy->home_bytes / 16, rows = copy->rows_bytes / 16;

    if (home == 0)
        return;
    if (copy->gathers)
        gather_words<<<COPY_BLOCKS, COPY_THREADS, 0, stream>>>((uint4 *)copy->home, home,
                                                               (const uint4 *)copy->rows, rows);
    else
        spread_words<<<COPY_BLOCKS, COPY_THREADS, 0, stream>>>((const uint4 *)copy->home, home,
                                                               (uint4 *)copy->rows, rows);
    perf_must(cudaGetLastError(), "copy");
}

void perf_launch_compute(int64_t units, int blocks, cudaStream_t stream)
{
    compute_units<<<(unsigned)blocks, BLOCK_THREADS, 0, stream>>>(units, NULL);
    perf_must(cudaGetLastError(), "compute_units");
}

void perf_launch_stores(const struct perf_stores *stores, int blocks, cudaStream_t stream)
{
    store_rows<<<(unsigned)blocks, BLOCK_THREADS, 0, stream>>>(*stores);
    perf_must(cudaGetLastError(), "store_rows");
}
