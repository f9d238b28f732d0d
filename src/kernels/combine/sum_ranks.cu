/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_ranks.cu - after combine_rows, home side of combine and dispatch backward: each token's rows
 * from the stage, summed in rank order; gradients of pair weights.
 * Work: reads this rank's unique rows, writes T rows. Order: ranks.
 * Launch: the whole device, waits for nothing; ends the operation.
 */
#include "kernels/combine/sums.cuh"

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    sum_ranks(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    const struct round round = round_of(a.rounds, 0);
    bool on = is_on(a.comm), weighted = a.backward && a.comm.state->weighted;

    if (on && a.rounds.num == 1)
        sum_tokens<T>(a, stored_places{a, round}, weighted, lists[threadIdx.x / EPX_WARP]);
    if (!is_last_block(a.comm) || threadIdx.x)
        return;
    if (on)
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    end_operation(a.comm, a.num_tokens);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(sum_ranks);

int epx_launch_sum_ranks(const struct epx_combine_rows *args, EPX_Stream stream)
{
    unsigned blocks =
        epx_blocks_for_rows(args->plan.shape.max_tokens, args->row_bytes, EPX_ROW_BLOCKS);

    kernels[epx_sum_kernel(args)]<<<blocks, EPX_WAITING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels);
