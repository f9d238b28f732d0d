/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unpack_sums.cu - home side of combine by messages: each token's rows of a round from the incoming
 * stage, summed; gradients of pair weights.
 * Work: reads the round's unique rows, writes its tokens. Order: home_sums.cuh.
 * Launch: the whole device, waits for nothing; that of the last round ends the operation.
 */
#include "kernels/flows/sums/home_sums.cuh"
#include "kernels/flows/sums/packed_places.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/protocol.cuh"

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    unpack_sums(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    bool on = is_on(a.comm);

    if (on) {
        find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
        sum_tokens<T>(a, packed_places{a, a.round, rows}, a.backward && a.comm.state->weighted,
                      lists[threadIdx.x / EPX_WARP]);
    }
    if (!a.round.last || !is_last_block(a.comm) || threadIdx.x)
        return;
    if (on)
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    end_operation(a.comm, a.num_tokens);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(unpack_sums);

int epx_launch_unpack_sums(const struct epx_combine_rows *args, EPX_Stream stream)
{
    unsigned blocks = epx_blocks_for_rows(args->comm, args->rounds.tokens, args->rounds.cut.bytes);

    kernels[epx_sum_kernel(args)]<<<blocks, EPX_WAITING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels);
