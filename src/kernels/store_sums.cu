/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_sums.cu - after combine_rows, if there is much to do: the sum of each row's pairs into the
 * home rank's stage, by the whole device, in one round.
 * Work: reads the rows of all pairs here, writes this rank's unique rows. Order: choices.
 * Launch: the whole device, waits for nothing. await_rows and sum_ranks follow.
 */
#include "sums.cuh"

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    store_sums(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];

    bool on = is_on(a.comm);

    if (on)
        send_sums(a, round_of(a.rounds, 0), a.backward && a.comm.state->weighted,
                  lists[threadIdx.x / EPX_WARP]);
    signal_arrival_of_all(a.comm, on);
}

int epx_launch_store_sums(const struct epx_combine_rows *args, EPX_Stream stream)
{
    unsigned blocks = epx_blocks_for_rows((int64_t)args->plan.max_tokens * args->comm.num_ranks);

    store_sums<<<blocks, EPX_WAITING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

int epx_load_store_sums(void)
{
    cudaFuncAttributes attributes;

    return epx_cuda_status(cudaFuncGetAttributes(&attributes, store_sums));
}
