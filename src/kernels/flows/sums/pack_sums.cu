/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pack_sums.cu - expert side of combine by messages: the sum of each row's pairs, rounded once,
 * into the outgoing stage by home rank in the order of records, the gradients of the pairs'
 * weights behind it; then posts their exchange, with relays that of those for other nodes' homes.
 * Work: reads the rows of the round's pairs, writes its unique rows. Order: choices.
 * Launch: the whole device, waits for nothing. await_messages and pass_sums or unpack_sums follow.
 */
#include "kernels/flows/sums/packed_places.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/messages.cuh"
#include "kernels/wires/relays.cuh"

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    pack_sums(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct passing passing;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    bool on = is_on(a.comm), relayed = a.plan.nodes.num_nodes;

    if (on) {
        find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
        send_sums<T>(a, packed_places{a, a.round, rows}, a.backward && a.comm.state->weighted,
                     lists[threadIdx.x / EPX_WARP]);
    }
    if (!is_last_block(a.comm) || !on)
        return;
    if (relayed)
        find_passing(a.plan, a.comm, a.rounds, rows, passing);
    post_exchange(a.comm, a.plan.outgoing, a.plan.incoming, [&](int32_t r) {
        return relayed ? message_inside(a.plan.nodes, a.rounds, rows, passing, r, false)
                       : message_of_rows(a.plan, a.comm, a.rounds, rows, r, false);
    });
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(pack_sums);

int epx_launch_pack_sums(const struct epx_combine_rows *args, EPX_Stream stream)
{
    int64_t rows = (int64_t)args->rounds.tokens * args->comm.num_ranks;
    unsigned blocks = epx_blocks_for_rows(args->comm, rows, args->rounds.cut.bytes);

    kernels[epx_sum_kernel(
        args)]<<<blocks, EPX_WAITING_THREADS, epx_passing_bytes(&args->plan.nodes), stream>>>(
        *args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels);
