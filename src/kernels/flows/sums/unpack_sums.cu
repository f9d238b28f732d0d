/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unpack_sums.cu - home side of combine by messages: each token's rows of a round from the incoming
 * stage, summed in rank order; gradients of pair weights.
 * Work: reads the round's unique rows, writes its tokens. Order: ranks.
 * Launch: the whole device, waits for nothing; that of the last round ends the operation.
 */
#include "kernels/flows/sums/home_sums.cuh"
#include "kernels/flows/sums/packed_places.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/protocol.cuh"

/* All of a kernel. */
template <typename T, typename Sums>
static __device__ __forceinline__ void unpack_all(const struct epx_combine_rows &a)
{
    __shared__ struct message_rows rows;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    bool on = is_on(a.comm);

    if (on) {
        find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
        sum_tokens<T, Sums>(a, packed_places{a, a.round, rows},
                            a.backward && a.comm.state->weighted, lists[threadIdx.x / EPX_WARP]);
    }
    if (!a.round.last || !is_last_block(a.comm) || threadIdx.x)
        return;
    if (on)
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    end_operation(a.comm, a.num_tokens);
}

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    unpack_sums(const __grid_constant__ struct epx_combine_rows a)
{
    unpack_all<T, struct plain_sums>(a);
}

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    unpack_home_sums(const __grid_constant__ struct epx_combine_rows a)
{
    unpack_all<T, struct home_sums>(a);
}

static void (*const kernels[2][NUM_SUM_KERNELS])(struct epx_combine_rows) = {
    SUM_KERNELS(unpack_sums), SUM_KERNELS(unpack_home_sums)};

int epx_launch_unpack_sums(const struct epx_combine_rows *args, EPX_Stream stream)
{
    unsigned blocks = epx_blocks_for_rows(args->comm, args->rounds.tokens, args->rounds.cut.bytes);

    kernels[epx_has_home_sums(args)]
           [epx_sum_kernel(args)]<<<blocks, EPX_WAITING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels[0]), loaded_home(kernels[1]);
