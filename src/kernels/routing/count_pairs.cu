/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * count_pairs.cu - pairs of each expert and unique rows of each rank; host twin
 * count_pairs_host.c, the same integers in another order.
 * Work: num_tokens * top_k, a thread a token. Reads ids, owner; writes experts, a row of the
 * count matrix and bad. Order: sums of integers by atomics; the first bad id by the least index.
 * Launch: two kernels on the stream, no more than EPX_MOST_BLOCKS blocks of 256 threads.
 */
#include "kernels/host/host_kernels.h"

#include "kernels/protocol/protocol.cuh"

extern "C" int epx_count_pairs(const struct epx_count_pairs *args, EPX_Stream stream);

/* bad->pairs counts, bad->value holds the least pair index until the second kernel. */
static __device__ void note_bad(struct epx_bad_id *bad, int64_t pair)
{
    atomicAdd((unsigned long long *)&bad->pairs, 1ULL);
    atomicMin((unsigned long long *)&bad->value, (unsigned long long)pair);
}

/* Whether an earlier choice of the token goes to the same rank. */
static __device__ bool seen_before(const struct epx_count_pairs &a, int64_t first, int32_t choice,
                                   int32_t rank)
{
    for (int32_t k = 0; k < choice; k++)
        if (a.experts[first + k] >= 0 && a.owner[a.experts[first + k]] == rank)
            return true;
    return false;
}

static __device__ void count_token(const struct epx_count_pairs &a, int64_t token)
{
    int32_t *rows = epx_unique_rows(a.counts, a.shape);
    int64_t first = token * a.top_k;

    for (int32_t k = 0; k < a.top_k; k++) {
        int64_t id = epx_expert_id(a.ids, a.index_bits, first + k);
        bool valid = id >= 0 && id < a.shape.num_experts;

        a.experts[first + k] = valid ? (int32_t)id : -1;
        if (!valid && id != -1)
            note_bad(a.bad, first + k);
        if (!valid)
            continue;
        atomicAdd(&a.counts[id], 1);
        if (!seen_before(a, first, k, a.owner[id]))
            atomicAdd(&rows[a.owner[id]], 1);
    }
}

static __global__ void count_pairs(struct epx_count_pairs a)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < a.num_tokens; t += step)
        count_token(a, t);
}

static __global__ void finish_count(struct epx_count_pairs a)
{
    *epx_num_tokens(a.counts, a.shape) = a.num_tokens;
    if (a.bad->pairs) {
        int64_t pair = a.bad->value;

        a.bad->token = (int32_t)(pair / a.top_k);
        a.bad->choice = (int32_t)(pair % a.top_k);
        a.bad->value = epx_expert_id(a.ids, a.index_bits, pair);
    }
}

extern "C" int epx_count_pairs(const struct epx_count_pairs *args, EPX_Stream stream)
{
    size_t bytes = epx_count_words(args->shape) * sizeof(*args->counts);

    if (cudaMemsetAsync(args->counts, 0, bytes, stream) != cudaSuccess ||
        cudaMemsetAsync(args->bad, 0, sizeof(*args->bad), stream) != cudaSuccess ||
        cudaMemsetAsync(&args->bad->value, 0xff, sizeof(args->bad->value), stream) != cudaSuccess)
        return epx_cuda_status(cudaGetLastError());
    count_pairs<<<epx_blocks_for(args->num_tokens), EPX_BLOCK_THREADS, 0, stream>>>(*args);
    finish_count<<<1, 1, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}
