/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * phases.cuh - kernels of which some blocks send, and wait for nobody until they have sent, and
 * others take, and wait for the other ranks' senders.
 *
 *   both phases     in one kernel, the senders first. No block waits for another of its own rank.
 *                   Only here may senders wait, too: for weights (flows/sums/few_sums.cuh).
 *   one phase each  the senders are a kernel that is queued at the call, the receivers one that is
 *                   queued when somebody waits for the operation. Between the two nothing of it is
 *                   on the GPU. The senders also do what other ranks wait for in any case: they
 *                   post ready.
 *
 * If the receivers are launched while the senders run, they begin beside them: each block of
 * senders says at its start that the kernel behind it may begin, so the receivers find all senders
 * on the multiprocessors, and what came before the senders done. They read nothing that anything
 * else between the two writes. Senders of a large operation that have sent take too
 * (protocol/task_claims.cuh). The last block of the receivers waits for the end of the senders, so
 * that what is queued behind the receivers comes behind both; it ends the operation.
 */
#ifndef EPX_KERNELS_PROTOCOL_PHASES_CUH
#define EPX_KERNELS_PROTOCOL_PHASES_CUH

#include "kernels/args/mover_args.h"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/protocol.cuh"

#ifdef __CUDACC__

/* Every thread of a kernel that may have one phase alone, before it reads what anybody writes while
 * operations run. */
static __device__ __forceinline__ void begin_phase(int32_t phase)
{
    if (phase == EPX_PHASE_TAKE)
        fence_acquire_sys(); /* what the multiprocessor keeps of memory may be old */
    else
        await_kernel_before();
    if (phase == EPX_PHASE_SEND)
        let_next_kernel_begin();
}

/* The blocks of this kernel that send, of all that do. */
static __device__ __forceinline__ int32_t senders_here(int32_t phase, int32_t senders)
{
    return phase == EPX_PHASE_TAKE ? 0 : senders;
}

/* A block of a kernel that only sends, last of all. */
static __device__ __forceinline__ void end_senders(const struct epx_device_comm &c)
{
    EPX_DELAY(c);
    __syncthreads();
    if (threadIdx.x == 0)
        add_release_gpu(&c.state->sent, 1);
}

/* One thread: waits until all blocks of the kernel that sends have ended. They have begun, and a
 * block that waits for a rank when it has sent has a clock of its own, whose end is an abort that
 * names the rank. Then, also if that was given up, the kernel before this one has ended. */
static __device__ bool await_senders(const struct epx_device_comm &c, int32_t senders)
{
    bool ok = true;

    EPX_DELAY(c);
    while (ok && load_acquire_gpu(&c.state->sent) < (uint64_t)senders)
        ok = !aborted(c);
    if (ok)
        c.state->sent = 0;
    await_kernel_before();
    return ok;
}

/* Every block of a kernel of movers calls it last: whether this thread ends the operation. */
static __device__ bool is_last_mover(const struct epx_device_comm &c,
                                     const struct epx_movers &movers)
{
    if (movers.phase == EPX_PHASE_SEND) {
        end_senders(c);
        return false;
    }
    if (!is_last_block(c) || threadIdx.x)
        return false;
    if (movers.phase == EPX_PHASE_TAKE)
        await_senders(c, movers.senders);
    c.state->taken = c.state->runs = c.state->begun = 0;
    return true;
}

/* How a kernel with so many blocks of each kind is launched. */
struct phase_launch {
    int32_t phase, senders, receivers;
    unsigned threads, shared_bytes;
    cudaStream_t stream;
};

static inline struct phase_launch mover_launch(const struct epx_movers &movers, unsigned threads,
                                               unsigned shared_bytes, cudaStream_t stream)
{
    return {movers.phase, movers.senders, movers.receivers, threads, shared_bytes, stream};
}

static inline unsigned blocks_of(const struct phase_launch &launch)
{
    switch (launch.phase) {
    case EPX_PHASE_SEND: return (unsigned)launch.senders;
    case EPX_PHASE_TAKE: return (unsigned)launch.receivers;
    default: return (unsigned)(launch.senders + launch.receivers);
    }
}

template <typename... Args>
static int launch_phase(const struct phase_launch &launch, void (*kernel)(Args...),
                        const Args &...args)
{
    return launch_behind({blocks_of(launch), launch.threads, launch.shared_bytes, launch.stream},
                         kernel, args...);
}

#endif

#endif
