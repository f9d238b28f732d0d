/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * list_passed_rows.cu - a routing by messages where rows cross to another node once, after the
 * exchange of records: a relay numbers its node rows for each rank of its node, by the entries.
 * Work: homes served * ranks of the node * max_tokens * top_k. Reads entries; writes passed.
 * Order: token. Launch: one block a (home, rank), waits for nothing. find_slots follows.
 */
#include "kernels/args/route_args.h"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/protocol.cuh"
#include "kernels/wires/relays.cuh"

static __device__ bool goes_to_rank(const struct epx_device_plan &plan, int32_t *entry,
                                    int32_t index)
{
    const uint16_t *ranks = epx_entry_ranks(entry);

    for (int32_t k = 0; k < plan.shape.top_k; k++)
        if (ranks[k] == index)
            return true;
    return false;
}

static __global__ void __launch_bounds__(NUMBERING_THREADS)
    list_passed_rows(const __grid_constant__ struct epx_route_tokens a)
{
    const struct epx_device_nodes &nodes = a.plan.nodes;
    int32_t served = (int32_t)blockIdx.x / nodes.size, index = (int32_t)blockIdx.x % nodes.size;
    int32_t home = nodes.served[served], num = 0;

    if (!is_on(a.comm))
        return;
    for (int32_t first = 0, all = num_node_rows(a.plan, a.comm, home, nodes.own); first < all;
         first += NUMBERING_THREADS) {
        int32_t row = first + (int32_t)threadIdx.x;
        bool is = row < all && goes_to_rank(a.plan, entry_of(a.plan, a.comm, home, row), index);
        int32_t before = take_numbers(is, num);

        if (row < all)
            *passed_number(a.plan, served, row, index) = number_of(before, is);
    }
}

int epx_launch_list_passed_rows(const struct epx_route_tokens *args, EPX_Stream stream)
{
    unsigned blocks = (unsigned)(args->plan.nodes.num_served * args->plan.nodes.size);

    if (blocks)
        list_passed_rows<<<blocks, NUMBERING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(list_passed_rows);
