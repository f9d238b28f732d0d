/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rows_by_messages.cu - a round of dispatch or combine backward by messages, leg by leg:
 *   pack    the home stores each token's row into the outgoing stage once for every rank that needs
 *           it, or once for the relay of a node, in the order of records, followed by the token's
 *           weights
 *   pass    a relay stores each node row that came from another node for the ranks of this node
 *           that need it, by rank and home
 *   unpack  the expert's rank takes each row from the incoming stage to its first slot, its weights
 *           to where ranks store them that need no messages
 * The first two post the exchange of what they have stored.
 * Work: reads and writes the unique rows of the round. Order: none, every byte has one writer.
 * Launch: the whole device, waits for nothing. await_messages and the next leg follow, behind the
 * last leg of the last round move_rows or move_grads.
 */
#include "kernels/flows/rows/packs.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/messages.cuh"

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    pack_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    const bool on = is_on(a.comm);

    if (on) {
        find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
        pack_tokens(a, a.round, rows, lists[threadIdx.x / EPX_WARP]);
    }
    if (is_last_block(a.comm) && on)
        post_exchange(a.comm, a.plan.outgoing, a.plan.incoming, [&](int32_t r) {
            return message_of_rows(a.plan, a.comm, a.rounds, rows, r, true);
        });
}

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    pass_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct passing passing;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    const bool on = is_on(a.comm);

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

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    unpack_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct record_range range;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];

    if (!is_on(a.comm))
        return;
    find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
    range_of_rows(a.comm, rows, range);
    unpack_records(a, a.round, rows, range, lists[threadIdx.x / EPX_WARP]);
}

/* The kernel of each leg. */
static void (*const kernels[])(struct epx_dispatch_rows) = {pack_rows, pass_rows, unpack_rows};

int epx_launch_rows_by_messages(const struct epx_dispatch_rows *args, enum epx_leg leg,
                                EPX_Stream stream)
{
    const int64_t rows = most_rows_of_leg(args->comm, args->plan.nodes, args->rounds, leg, true);
    const unsigned blocks = epx_blocks_for_rows(args->comm, rows, args->rounds.cut.bytes);

    kernels[leg]<<<blocks, EPX_WAITING_THREADS, epx_passing_bytes(&args->plan.nodes), stream>>>(
        *args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels);
