/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * agree_by_messages.cu - how an operation by messages begins: the ranks exchange their ready
 * words and come to the same verdict, which the kernels that follow find in the state.
 * Launch: one block, which waits for other ranks.
 */
#include "kernels/args/control_args.h"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/messages.cuh"

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    agree_by_messages(const __grid_constant__ struct epx_agree a)
{
    __shared__ struct exchange x;

    exchange_ready(a.comm, a.note, a.stands ? a.routing : NULL, x);
    if (threadIdx.x == 0)
        hand_over(a.comm, x, 0, false, a.routing);
}

int epx_launch_agree_by_messages(const struct epx_agree *args, EPX_Stream stream)
{
    agree_by_messages<<<1, EPX_WAITING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(agree_by_messages);
