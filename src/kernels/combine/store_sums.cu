/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_sums.cu - after combine_rows, if there is much to do: the sum of each row's pairs into the
 * home rank's stage.
 * Work: reads the rows of all pairs here, writes this rank's unique rows. Order: choices.
 * Launch: up to the whole device, waits for nothing. await_rows and sum_ranks follow.
 */
#include "kernels/combine/sums.cuh"

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    store_sums(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    const struct round round = round_of(a.rounds, 0);
    bool on = is_on(a.comm);

    if (on)
        send_sums<T>(a, stored_places{a, round}, a.backward && a.comm.state->weighted,
                     lists[threadIdx.x / EPX_WARP]);
    signal_arrival_of_all(a.comm, on);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(store_sums);

int epx_launch_store_sums(const struct epx_combine_rows *args, EPX_Stream stream)
{
    int64_t rows = (int64_t)args->plan.shape.max_tokens * args->comm.num_ranks;
    unsigned blocks = epx_blocks_for_rows(rows, args->row_bytes, EPX_ROW_BLOCKS);

    kernels[epx_sum_kernel(args)]<<<blocks, EPX_WAITING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels);
