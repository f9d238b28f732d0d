/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * agree_by_words.cu - how a dispatch, a combine or a backward begins where ranks store into each
 * other's memory and it is not small: they tell each other what they are about to do and come to
 * the same verdict, which move_rows, move_sums or move_grads finds in the state.
 * Launch: one block, which waits for other ranks.
 */
#include "kernels/args/control_args.h"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/protocol.cuh"

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    agree(const __grid_constant__ struct epx_agree a)
{
    __shared__ struct exchange x;

    await_kernel_before();
    begin_moves(a.comm, a.note, a.listed ? &a.list : NULL, a.routing, x);
    if (threadIdx.x == 0)
        hand_over(a.comm, x, 0, true, a.routing);
}

int epx_launch_agree(const struct epx_agree *args, EPX_Stream stream)
{
    return launch_behind({1, EPX_WAITING_THREADS, 0, stream}, agree, *args);
}

static const struct epx_loaded loaded(agree);
