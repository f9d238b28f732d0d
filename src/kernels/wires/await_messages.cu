/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * await_messages.cu - waits for the messages that the kernel before it has posted; the kernel after
 * it takes what came.
 * Launch: one block, or a few that make the copies of the exchange.
 */
#include "kernels/args/control_args.h"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/messages.cuh"

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    await_messages(const __grid_constant__ struct epx_device_comm c)
{
    if (is_on(c))
        await_number(c, c.state->exchanges.num); /* else the abort word is set */
}

int epx_launch_await_messages(const struct epx_device_comm *comm, EPX_Stream stream)
{
    unsigned threads = comm->copies ? EPX_WAITING_THREADS : EPX_WARP;

    await_messages<<<epx_blocks_for_messages(*comm), threads, 0, stream>>>(*comm);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(await_messages);
