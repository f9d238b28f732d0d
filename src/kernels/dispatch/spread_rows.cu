/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * spread_rows.cu - after dispatch_rows: each row from its first slot to its other slots, pair
 * weights to their rows, zeros to padding rows.
 * Work: reads rows that have several slots, writes their copies. Order: none.
 * Launch: the whole device, waits for nothing; ends the operation.
 */
#include "kernels/dispatch/spreads.cuh"

template <bool LIST>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    spread_rows(const __grid_constant__ struct epx_dispatch_rows a, struct epx_chunk chunk)
{
    __shared__ struct record_range range;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    bool on = is_on(a.comm), weighted = takes_weights(a);
    bool whole = !a.comm.state->deferred; /* nothing came in chunks: the last launch spreads all */
    bool last = chunk.number == chunk.num - 1;

    if (on && (last || !whole)) {
        find_range(a.plan, a.comm.num_ranks, a.plan.records[a.comm.rank],
                   whole ? 0 : chunk.first_token, chunk.end_token, range);
        spread_records<LIST>(a, range, lists[threadIdx.x / EPX_WARP], weighted);
    }
    if (!last)
        return;
    if (on)
        zero_rest<LIST>(a, weighted);
    end_dispatch(a, on);
}

static void (*const kernels[])(struct epx_dispatch_rows, struct epx_chunk) = {spread_rows<false>,
                                                                              spread_rows<true>};

int epx_launch_spread_rows(const struct epx_dispatch_rows *args, struct epx_chunk chunk,
                           EPX_Stream stream)
{
    int64_t rows = (chunk.end_token - chunk.first_token) * args->comm.num_ranks;

    kernels[args->fields.num > 1]<<<epx_blocks_for_rows(rows, args->row_bytes, EPX_ROW_BLOCKS),
                                    EPX_WAITING_THREADS, 0, stream>>>(*args, chunk);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels);
