/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pack_rows.cu - home side of dispatch by messages: each token's row into the outgoing stage once
 * for every rank that needs it, or once for the relay of a node, in the order of records, followed
 * by the token's weights; then posts their exchange.
 * Work: reads the round's rows, writes its unique rows. Order: none, every byte has one writer.
 * Launch: the whole device, waits for nothing. await_messages and pass_rows or unpack_rows follow.
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
    bool on = is_on(a.comm);

    if (on) {
        find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
        pack_tokens(a, a.round, rows, lists[threadIdx.x / EPX_WARP]);
    }
    if (is_last_block(a.comm) && on)
        post_exchange(a.comm, a.plan.outgoing, a.plan.incoming, [&](int32_t r) {
            return message_of_rows(a.plan, a.comm, a.rounds, rows, r, true);
        });
}

int epx_launch_pack_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    unsigned blocks = epx_blocks_for_rows(args->comm, args->rounds.tokens, args->rounds.cut.bytes);

    pack_rows<<<blocks, EPX_WAITING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(pack_rows);
