/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * list_node_rows.cu - a routing by messages where rows cross to another node once, after
 * count_tokens: numbers this home's node rows and writes an entry of each, behind the records for
 * its relay; then posts the exchange of the counts.
 * Work: nodes * max_tokens * top_k. Reads the pairs; writes token_row, entries, the rank's row of
 * the matrix. Order: token. Launch: one block a node, waits for nothing.
 */
#include "kernels/args/route_args.h"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/routing/count_messages.cuh"
#include "kernels/wires/message_rows.cuh"

static __device__ int32_t rank_of_pair(const struct epx_device_plan &plan, int64_t pair)
{
    int32_t expert = plan.pairs[pair].expert;

    return expert < 0 ? -1 : plan.owner[expert];
}

static __device__ bool goes_to_node(const struct epx_route_tokens &a, int64_t token, int32_t node)
{
    for (int32_t k = 0; k < a.plan.shape.top_k; k++) {
        int32_t rank = rank_of_pair(a.plan, token * a.plan.shape.top_k + k);

        if (rank >= 0 && a.comm.node[rank] == node)
            return true;
    }
    return false;
}

static __device__ void write_entry(const struct epx_route_tokens &a, int32_t token, int32_t node,
                                   int32_t row)
{
    int32_t relay = a.plan.nodes.relay[node];
    int32_t *entry = entry_behind(a.plan, a.plan.outgoing_records, relay,
                                  num_records(a.plan, a.comm, a.comm.rank, relay), row);
    uint16_t *ranks = epx_entry_ranks(entry);

    *entry = token;
    for (int32_t k = 0; k < a.plan.shape.top_k; k++) {
        int32_t rank = rank_of_pair(a.plan, (int64_t)token * a.plan.shape.top_k + k);

        ranks[k] = rank >= 0 && a.comm.node[rank] == node ? (uint16_t)a.plan.nodes.index[rank]
                                                          : (uint16_t)EPX_ELSEWHERE;
    }
}

/* Numbers the node rows of this home for a node; returns how many there are. */
static __device__ int32_t list_rows(const struct epx_route_tokens &a, int32_t node)
{
    int32_t *numbers = a.plan.nodes.token_row + (int64_t)node * a.plan.shape.max_tokens, num = 0;

    for (int32_t first = 0; first < a.plan.shape.max_tokens; first += NUMBERING_THREADS) {
        int32_t token = first + (int32_t)threadIdx.x;
        bool is = token < a.num_tokens && goes_to_node(a, token, node);
        int32_t row = take_numbers(is, num);

        if (token < a.plan.shape.max_tokens)
            numbers[token] = number_of(row, is);
        if (is)
            write_entry(a, token, node, row);
    }
    return num;
}

static __global__ void __launch_bounds__(NUMBERING_THREADS)
    list_node_rows(const __grid_constant__ struct epx_route_tokens a)
{
    int32_t node = (int32_t)blockIdx.x, rows = a.plan.shape.num_experts + a.comm.num_ranks;
    bool on = is_on(a.comm);

    if (on) {
        int32_t num = node == a.plan.nodes.own ? 0 : list_rows(a, node);

        if (threadIdx.x == 0)
            ((int32_t *)(uintptr_t)counts_of(a.plan, a.comm, a.comm.rank))[rows + node] = num;
    }
    if (is_last_block(a.comm) && on)
        post_counts(a.comm, a.plan);
}

int epx_launch_list_node_rows(const struct epx_route_tokens *args, EPX_Stream stream)
{
    unsigned blocks = (unsigned)args->plan.nodes.num_nodes;

    list_node_rows<<<blocks, NUMBERING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(list_node_rows);
