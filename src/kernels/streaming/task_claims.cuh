/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task_claims.cuh - tasks that the takers of a large operation share, or its senders. The first of
 * a warp follows from its number; then it claims the first that nobody has, once it can begin with
 * it, so that all warps end at about the same time. A warp that adds sums claims one ahead
 * (sum_streams.cuh), whose parts may have still to come. is_last_mover sets the counters to 0.
 *
 * Late blocks are of a kernel of takers alone, and begin where senders have left a multiprocessor.
 * Their warps claim only what has come, so they wait for nobody: if they did, those of two
 * communicators could keep each other's senders from every multiprocessor. They end where nothing
 * is left that has come.
 */
#ifndef EPX_KERNELS_STREAMING_TASK_CLAIMS_CUH
#define EPX_KERNELS_STREAMING_TASK_CLAIMS_CUH

#include "kernels/protocol/phases.cuh"

#ifdef __CUDACC__

/* What a late warp has in place of a task if the next one cannot be begun yet. */
static const int64_t NOT_HERE = INT64_MAX;

/* What a warp has claimed. */
struct task_claims {
    uint64_t *counter; /* tasks claimed beside the first ones */
    int64_t task;      /* -1: none yet; as many as there are or more: none is left for it */
    int64_t first;     /* that it has by its number */
    int64_t firsts;    /* tasks that warps have so */
    bool late;
};

/* The warps that take, of blocks that are not late; of a late block no warp has a number. */
static __device__ __forceinline__ struct crew crew_of_takers(const struct epx_movers &movers,
                                                             int32_t senders)
{
    const int32_t warps = (int32_t)(blockDim.x / EPX_WARP), blocks = (int32_t)gridDim.x - senders;
    const int32_t takers = movers.phase == EPX_PHASE_TAKE ? movers.takers : blocks;
    const int32_t block = (int32_t)blockIdx.x - senders;

    if (block >= takers)
        return {-1, takers * warps};
    return {(int32_t)(threadIdx.x / EPX_WARP) * takers + block, takers * warps};
}

/* What the warp has before its first task. */
static __device__ __forceinline__ struct task_claims no_task_of(const struct crew &crew,
                                                                uint64_t *counter)
{
    return {counter, -1, crew.warp, crew.num, crew.warp < 0};
}

/* The whole warp, unless it is late: goes on to the next task. */
static __device__ __forceinline__ void claim_next(struct task_claims &claims)
{
    unsigned long long before = 0;

    if (claims.task < 0) {
        claims.task = claims.first;
        return;
    }
    if (lane_id() == 0)
        before = atomicAdd((unsigned long long *)claims.counter, 1ULL);
    claims.task = claims.firsts + (int64_t)__shfl_sync(~0u, before, 0);
}

/* One lane: claims a task if it is still the next one. */
static __device__ __forceinline__ bool claim_task(const struct task_claims &claims, int64_t task)
{
    const uint64_t taken = (uint64_t)(task - claims.firsts);

    return atomicCAS((unsigned long long *)claims.counter, taken, taken + 1) == taken;
}

/* The whole warp of a late block: the next task, if it is_here(task), else NOT_HERE; num if all
 * have been claimed. */
template <typename IsHere>
static __device__ int64_t claim_what_is_here(const struct epx_device_comm &c,
                                             const struct task_claims &claims, int64_t num,
                                             IsHere is_here)
{
    for (;;) {
        int64_t task = 0;

        if (lane_id() == 0)
            task = claims.firsts + (int64_t)load_acquire_gpu(claims.counter);
        task = __shfl_sync(~0u, task, 0);
        if (task >= num)
            return num;
        if (!__all_sync(~0u, is_here(task))) /* lanes look at different times */
            return NOT_HERE;
        EPX_DELAY(c);
        if (__shfl_sync(~0u, lane_id() == 0 && claim_task(claims, task), 0))
            return task;
    }
}

/* The whole warp: goes on to the next of num tasks. is_here(task) says whether what the task takes
 * has come. */
template <typename IsHere>
static __device__ __forceinline__ void
next_task(const struct epx_device_comm &c, struct task_claims &claims, int64_t num, IsHere is_here)
{
    EPX_DELAY(c);
    if (claims.late)
        claims.task = claim_what_is_here(c, claims, num, is_here);
    else
        claim_next(claims);
}

#endif

#endif
