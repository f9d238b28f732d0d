/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pass_rows.cu - a relay in dispatch by messages: each node row that came from another node to the
 * ranks of this node that need it, by rank and home; then posts their exchange.
 * Work: reads the round's node rows, writes their unique rows here. Order: none.
 * Launch: the whole device, waits for nothing. await_messages and unpack_rows follow.
 */
#include "kernels/flows/rows/packs.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/messages.cuh"

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    pass_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct passing passing;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    bool on = is_on(a.comm);

    if (on) {
        find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
        find_passing(a.plan, a.comm, a.rounds, rows, passing);
        pass_tokens(a, a.round, rows, passing, lists[threadIdx.x / EPX_WARP]);
    }
    if (is_last_block(a.comm) && on)
        post_exchange(a.comm, a.plan.outgoing, a.plan.incoming, [&](int32_t r) {
            return message_inside(a.plan.nodes, a.rounds, rows, passing, r, true);
        });
}

int epx_launch_pass_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    int64_t rows = (int64_t)args->rounds.tokens * args->plan.nodes.num_served;
    unsigned blocks = epx_blocks_for_rows(args->comm, rows, args->rounds.cut.bytes);

    pass_rows<<<blocks, EPX_WAITING_THREADS, epx_passing_bytes(&args->plan.nodes), stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(pass_rows);
