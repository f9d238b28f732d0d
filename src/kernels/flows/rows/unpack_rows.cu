/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unpack_rows.cu - expert side of dispatch by messages: each row of a round from the incoming stage
 * to its first slot, its weights to where ranks store them that need no messages.
 * Work: reads and writes the unique rows of the round. Order: none.
 * Launch: the whole device, waits for nothing. move_rows or move_grads follows.
 */
#include "kernels/flows/rows/packs.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    unpack_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct record_range range;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];

    if (!is_on(a.comm))
        return;
    find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
    range_of_rows(a.comm, rows, range);
    unpack_records(a, a.round, rows, range, lists[threadIdx.x / EPX_WARP]);
}

int epx_launch_unpack_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    int64_t rows = (int64_t)args->rounds.tokens * args->comm.num_ranks;
    unsigned blocks = epx_blocks_for_rows(args->comm, rows, args->rounds.cut.bytes);

    unpack_rows<<<blocks, EPX_WAITING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(unpack_rows);
