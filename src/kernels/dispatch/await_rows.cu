/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * await_rows.cu - the wait for what all ranks store, between a kernel that stores by the whole
 * device and one that takes what came by the whole device: neither of them waits.
 * Launch: one warp.
 */
#include "kernels/protocol/protocol.cuh"

static __global__ void await_rows(const __grid_constant__ struct epx_device_comm c,
                                  struct epx_chunk chunk)
{
    __shared__ struct exchange x;

    if (!is_on(c) || !c.state->deferred)
        return;
    if (threadIdx.x == 0) {
        x.arrivals = c.state->arrivals;
        x.outcome = epx_outcome();
    }
    __syncthreads();
    await_arrivals(c, x, (uint64_t)chunk.number + 1); /* else the abort word is set */
}

int epx_launch_await_rows(const struct epx_device_comm *comm, struct epx_chunk chunk,
                          EPX_Stream stream)
{
    await_rows<<<1, EPX_WARP, 0, stream>>>(*comm, chunk);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(await_rows);
