/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task_claims.cuh - tasks that the receivers of a large operation share, or its senders. The first
 * of a warp follows from its number; then it claims the first that nobody has, once it can begin
 * with it, so that all warps end at about the same time. A warp that adds sums claims one ahead
 * (sum_ring.cuh), whose parts may have still to come. is_last_mover sets the counters to 0.
 *
 * A sender's warp that has sent takes too, without a first task, if all senders of all other ranks
 * have begun (all_have_begun): then it waits for nobody who waits for a multiprocessor. Otherwise
 * those of two communicators could keep each other's senders from every multiprocessor, and a
 * kernel of senders alone would hold multiprocessors as long as another rank is behind.
 */
#ifndef EPX_KERNELS_PROTOCOL_TASK_CLAIMS_CUH
#define EPX_KERNELS_PROTOCOL_TASK_CLAIMS_CUH

#include "kernels/args/device_comm.h"
#include "kernels/args/mover_args.h"
#include "kernels/protocol/kernel_jitter.cuh"
#include "kernels/warp/lanes.cuh"

#ifdef __CUDACC__

/* What a warp has claimed. */
struct task_claims {
    uint64_t *counter; /* tasks claimed beside the first ones */
    int64_t task;      /* -1: none yet; as many as there are or more: none is left for it */
    int64_t first;     /* that it has by its number; -1: none */
    int64_t firsts;    /* tasks that warps have so */
};

/* The warps that take; of a block that has sent no warp has a number. */
static __device__ __forceinline__ struct crew crew_of_receivers(const struct epx_movers &movers,
                                                                int32_t senders)
{
    const int32_t warps = (int32_t)(blockDim.x / EPX_WARP), blocks = (int32_t)gridDim.x - senders;
    const int32_t receivers = movers.phase == EPX_PHASE_SEND ? movers.receivers : blocks;
    const int32_t block = (int32_t)blockIdx.x - senders;

    if (block < 0)
        return {-1, receivers * warps};
    return {(int32_t)(threadIdx.x / EPX_WARP) * receivers + block, receivers * warps};
}

/* What the warp has before its first task. */
static __device__ __forceinline__ struct task_claims no_task_of(const struct crew &crew,
                                                                uint64_t *counter)
{
    return {counter, -1, crew.warp, crew.num};
}

/* The whole warp: goes on to the next task. */
static __device__ __forceinline__ void claim_next(const struct epx_device_comm &c,
                                                  struct task_claims &claims)
{
    unsigned long long before = 0;

    EPX_DELAY(c);
    if (claims.task < 0 && claims.first >= 0) {
        claims.task = claims.first;
        return;
    }
    if (lane_id() == 0)
        before = atomicAdd((unsigned long long *)claims.counter, 1ULL);
    claims.task = claims.firsts + (int64_t)__shfl_sync(~0u, before, 0);
}

#endif

#endif
