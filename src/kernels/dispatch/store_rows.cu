/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_rows.cu - after dispatch_rows, if there is much to do and no stage in use: each token's row
 * into its first slot on every rank that needs it, a chunk of tokens at a time.
 * Work: reads T rows, writes this rank's unique rows. Order: none, every byte has one writer.
 * Launch: up to the whole device, waits for nothing. await_rows, then spread_rows or scale_rows
 * follow.
 */
#include "kernels/dispatch/sends.cuh"

template <bool LIST>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    store_rows(const __grid_constant__ struct epx_dispatch_rows a, struct epx_chunk chunk)
{
    const struct epx_segments whole = epx_segments_cut(a.row_bytes, a.row_bytes);
    const struct round round = {chunk.first_token, chunk.end_token, 0};
    __shared__ struct exchange x;
    __shared__ struct windows<LIST> w;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];

    bool on = is_on(a.comm) && a.comm.state->deferred;

    resume_exchange(a.comm, x);
    if (on)
        read_windows(a, x, w);
    if (on && x.weighted && chunk.number == 0)
        send_weights(a);
    if (on)
        send_rows(a, x, sending<LIST>{whole, round, w}, lists[threadIdx.x / EPX_WARP]);
    signal_arrival_of_all(a.comm, on);
}

static void (*const kernels[])(struct epx_dispatch_rows, struct epx_chunk) = {store_rows<false>,
                                                                              store_rows<true>};

int epx_launch_store_rows(const struct epx_dispatch_rows *args, struct epx_chunk chunk,
                          EPX_Stream stream)
{
    int64_t most = chunk.num > 1 ? EPX_STORING_BLOCKS : EPX_ROW_BLOCKS;
    unsigned blocks =
        epx_blocks_for_rows(chunk.end_token - chunk.first_token, args->row_bytes, most);

    kernels[args->fields.num > 1]<<<blocks, EPX_WAITING_THREADS, 0, stream>>>(*args, chunk);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels);
