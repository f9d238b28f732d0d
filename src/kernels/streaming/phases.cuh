/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * phases.cuh - how the kernels that move rows, sums and gradients are launched: movers.senders
 * blocks that send and wait for nobody, and movers.takers, which wait for the other ranks' senders.
 *
 *   all at once     in one kernel, the senders first. No block waits for another of its own rank.
 *   in two phases   each in a kernel of its own, the senders at the call, the takers when somebody
 *                   waits for the operation. Between the two nothing of it is on the GPU.
 *
 * If the takers are launched while the senders run, they begin beside them: each block of senders
 * says at its start that the kernel behind it may begin, so the takers find all senders on the
 * multiprocessors, and what came before the senders done. They read nothing that anything else
 * between the two writes. The last block of the takers waits for the end of the senders, so that
 * what is queued behind the takers comes behind both; it ends the operation.
 */
#ifndef EPX_KERNELS_STREAMING_PHASES_CUH
#define EPX_KERNELS_STREAMING_PHASES_CUH

#include "kernels/protocol/protocol.cuh"

#ifdef __CUDACC__

/* Every thread, first of all. */
static __device__ __forceinline__ void begin_phase(const struct epx_movers &movers)
{
    if (movers.phase == EPX_PHASE_SEND)
        let_next_kernel_begin();
}

struct mover_launch {
    unsigned threads, shared_bytes;
    cudaStream_t stream;
};

static unsigned blocks_of_phase(const struct epx_movers &movers)
{
    switch (movers.phase) {
    case EPX_PHASE_SEND: return (unsigned)movers.senders;
    case EPX_PHASE_TAKE: return (unsigned)movers.takers;
    default: return (unsigned)(movers.senders + movers.takers);
    }
}

template <typename Args>
static int launch_movers(void (*kernel)(Args), const Args &args, const struct mover_launch &launch)
{
    const unsigned overtakes = args.movers.phase == EPX_PHASE_TAKE;
    cudaLaunchAttribute attribute = {};
    const cudaLaunchConfig_t config = {dim3(blocks_of_phase(args.movers)),
                                       dim3(launch.threads),
                                       launch.shared_bytes,
                                       launch.stream,
                                       &attribute,
                                       overtakes};

    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    return epx_cuda_status(cudaLaunchKernelEx(&config, kernel, args));
}

#endif

#endif
