/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_rows.cu - after dispatch_rows, if there is much to do and no stage in use: each token's row
 * into its first slot on every rank that needs it, by the whole device.
 * Work: reads T rows, writes this rank's unique rows. Order: none, every byte has one writer.
 * Launch: the whole device, waits for nothing. await_rows and spread_rows or scale_rows follow.
 */
#include "sends.cuh"

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    store_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    const struct round everything = {0, a.plan.max_tokens, 0};
    __shared__ struct exchange x;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];

    bool on = is_on(a.comm) && a.comm.state->deferred;

    resume_exchange(a.comm, x);
    if (on && x.weighted)
        send_weights(a);
    if (on)
        send_rows(a, x, epx_segments_cut(a.row_bytes, a.row_bytes), everything,
                  lists[threadIdx.x / EPX_WARP]);
    signal_arrival_of_all(a.comm, on);
}

int epx_launch_store_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    store_rows<<<epx_blocks_for_rows(args->plan.max_tokens), EPX_WAITING_THREADS, 0, stream>>>(
        *args);
    return epx_cuda_status(cudaGetLastError());
}

int epx_load_store_rows(void)
{
    cudaFuncAttributes attributes;

    return epx_cuda_status(cudaFuncGetAttributes(&attributes, store_rows));
}
