/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * count_tokens.cu - a routing by messages, first step: counts this rank's pairs and rows, numbers
 * them, and writes its records to where they are sent from; then posts the exchange of the counts,
 * unless list_node_rows comes before it.
 * Work: max_tokens * top_k. Reads ids; writes records and the rank's row of the matrix.
 * Order: (token, choice). Launch: comm.blocks blocks, which meet at one barrier.
 */
#include "kernels/routing/routing_steps.cuh"

#include "kernels/protocol/message_rows.cuh"

static __global__ void __launch_bounds__(ROUTING_THREADS)
    count_tokens_here(const __grid_constant__ struct epx_route_tokens a, struct shared_parts parts)
{
    extern __shared__ int64_t shared[];
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
        on = count_tokens(a, x, table, warps, counts, true);
    if (is_last_block(a.comm, &x, failed) && on && !failed && a.plan.nodes.num_nodes == 0)
        post_counts(a.comm, a.plan);
}

int epx_launch_count_tokens(const struct epx_route_tokens *args, EPX_Stream stream)
{
    struct shared_parts parts = parts_of(args);

    count_tokens_here<<<(unsigned)args->comm.blocks, ROUTING_THREADS, bytes_of_parts(parts),
                        stream>>>(*args, parts);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(count_tokens_here, MOST_ROUTING_BYTES);
