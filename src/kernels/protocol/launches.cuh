/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * launches.cuh - kernels of a stream one behind the other without the gap of a launch, by CUDA's
 * programmatic dependent launch: the blocks of a kernel may take their places on multiprocessors
 * while the kernel before them ends. GPUs before sm_90, and code for them, launch a kernel when the
 * one before has ended.
 *
 *   await_kernel_before    every thread of a kernel calls it before it reads what a kernel, a copy
 *                          or another rank may write while operations run, or writes to other
 *                          memory than its block's. The kernel before has ended then, and all that
 *                          it wrote is there. Kernels that only take (phases.cuh) call it at their
 *                          end.
 *   let_next_kernel_begin  a thread of each block calls it once no thread of the block waits for
 *                          another rank any more, but for blocks there that have their places.
 *
 * No deadlock: blocks that have their places keep others out, also kernels of other communicators
 * that other ranks wait for. Behind a kernel of this library they have them early only where that
 * one ends without other ranks, or waits for blocks of theirs that have their places and wait for
 * nobody (phases.cuh), so not for long. Behind a kernel of somebody else's that lets the next one
 * begin and then waits for other ranks they may keep out what these wait for.
 */
#ifndef EPX_KERNELS_PROTOCOL_LAUNCHES_CUH
#define EPX_KERNELS_PROTOCOL_LAUNCHES_CUH

#include <epx.h>

#include "kernels/args/load.h"

#ifdef __CUDACC__

static inline int epx_cuda_status(cudaError_t error)
{
    return error == cudaSuccess ? EPX_SUCCESS : EPX_ERR_CUDA;
}

struct kernel_launch {
    unsigned blocks, threads, shared_bytes;
    cudaStream_t stream;
};

/* Launches a kernel that may begin early. */
template <typename... Args>
static int launch_behind(const struct kernel_launch &launch, void (*kernel)(Args...),
                         const Args &...args)
{
    cudaLaunchAttribute early = {};
    const cudaLaunchConfig_t config = {dim3(launch.blocks),
                                       dim3(launch.threads),
                                       launch.shared_bytes,
                                       launch.stream,
                                       &early,
                                       (unsigned)epx_kernels_begin_early()};

    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    return epx_cuda_status(cudaLaunchKernelEx(&config, kernel, args...));
}

#endif

#endif
