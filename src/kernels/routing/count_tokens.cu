/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * count_tokens.cu - a routing by messages, first step: counts this rank's pairs and rows, numbers
 * them, and writes its records to where they are sent from; then posts the exchange of the counts,
 * unless list_node_rows comes before it.
 * Work: max_tokens * top_k. Reads ids; writes records and the rank's row of the matrix.
 * Order: (token, choice). Launch: comm.blocks blocks, which meet at one barrier.
 */
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/routing/count_messages.cuh"
#include "kernels/routing/routing_steps.cuh"

enum { BLOCKS_AT_ONCE = 12 };

/* Stores the totals to where they are sent from; each block stores some of them. */
static __device__ void store_totals(const struct epx_route_tokens &a, const int32_t *total)
{
    int32_t num = num_counts(a), me = a.comm.rank;

    for (int32_t i = (int32_t)threadIdx.x; i < num; i += (int32_t)blockDim.x)
        if (i / EPX_WARP % a.comm.blocks == (int32_t)blockIdx.x)
            for (int32_t r = 0; r < a.comm.num_ranks; r++)
                ((int32_t *)(void *)a.plan.counts[r])[(int64_t)me * num + i] = total[i];
}

/*
 * The whole block: sums what the blocks before have counted, and what all have, and stores the
 * totals. Where counters are few several threads share one.
 */
static __device__ void sum_over_blocks(const struct epx_route_tokens &a, int32_t *before,
                                       int32_t *total)
{
    uint32_t num = (uint32_t)num_counts(a), shares = ROUTING_THREADS / num;

    shares = shares ? shares : 1;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < num * shares; i += ROUTING_THREADS) {
        uint32_t counter = i % num, blocks = (uint32_t)a.comm.blocks;
        int32_t sum = 0, sum_before = 0;

#pragma unroll 1
        for (uint32_t first = i / num; first < blocks; first += shares * BLOCKS_AT_ONCE) {
            int32_t there[BLOCKS_AT_ONCE];

#pragma unroll
            for (uint32_t j = 0; j < BLOCKS_AT_ONCE; j++) {
                uint32_t b = first + j * shares;

                there[j] = b < blocks ? a.plan.block_counts[(int64_t)b * num + counter] : 0;
            }
#pragma unroll
            for (uint32_t j = 0; j < BLOCKS_AT_ONCE; j++) {
                sum += there[j];
                sum_before += first + j * shares < blockIdx.x ? there[j] : 0;
            }
        }
        atomicAdd(&total[counter], sum);
        atomicAdd(&before[counter], sum_before);
    }
    __syncthreads();
    store_totals(a, total);
}

/* Counts and numbers all pairs, and writes the records to where they are sent from. */
static __device__ bool count_tokens(const struct epx_route_tokens &a, struct exchange &x,
                                    const struct rank_table &table, int32_t counting_warps,
                                    int32_t *counts)
{
    struct chunk chunk = chunk_of(a, counting_warps, counts);
    struct lanes lanes = lanes_of(a.plan.shape.top_k);
    int32_t *before = counts + (int64_t)counting_warps * num_counts(a);

    count_chunk(a, table, chunk, lanes, first_id(a, chunk, lanes));
    __syncthreads();
    sum_over_warps(a, counting_warps, counts);
    come_to_barrier(a.comm);
    scan_counters(a, counting_warps, counts);
    if (!await_barrier(a.comm, x))
        return false;
    sum_over_blocks(a, before, before + num_counts(a));
    number_chunk(a, table, chunk, before);
    return true;
}

static __global__ void __launch_bounds__(ROUTING_THREADS)
    count_tokens_here(const __grid_constant__ struct epx_route_tokens a, struct shared_parts parts)
{
    extern __shared__ __align__(16) int64_t shared[];
    __shared__ struct exchange x;
    __shared__ struct rank_table table;
    struct room room = divide_room(shared, parts);
    int32_t warps = parts.warps ? parts.warps : 1, *counts = counters_of(a, parts, room.words);
    bool on = is_on(a.comm), failed;

    look_up(a, room.owner, table);
    zero_counts(a, warps, counts);
    if (threadIdx.x == 0) {
        x.outcome = epx_outcome();
        x.barrier = a.comm.state->barrier;
    }
    __syncthreads();
    if (on && blockIdx.x == 0)
        zero_sums(a);
    if (on)
        on = count_tokens(a, x, table, warps, counts);
    if (is_last_block(a.comm, &x, failed) && on && !failed && a.plan.nodes.num_nodes == 0)
        post_counts(a.comm, a.plan);
}

int epx_launch_count_tokens(const struct epx_route_tokens *args, EPX_Stream stream)
{
    struct shared_parts parts = parts_of(args, ROUTING_THREADS / EPX_WARP);

    count_tokens_here<<<(unsigned)args->comm.blocks, ROUTING_THREADS, bytes_of_parts(parts),
                        stream>>>(*args, parts);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(count_tokens_here, MOST_ROUTING_BYTES);
