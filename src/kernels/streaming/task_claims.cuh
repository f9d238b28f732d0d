/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task_claims.cuh - tasks that the takers of a large operation share. The first of a warp follows
 * from its number; then it claims the first that nobody has, so that blocks which begin late, when
 * the senders have left their multiprocessors, take work from those that began before. A claim is
 * under way while the warp works on the task before it. is_last_mover sets the counter to 0.
 */
#ifndef EPX_KERNELS_STREAMING_TASK_CLAIMS_CUH
#define EPX_KERNELS_STREAMING_TASK_CLAIMS_CUH

#include "kernels/protocol/protocol.cuh"

#ifdef __CUDACC__

/* What a warp has claimed. */
struct task_claims {
    int64_t task;   /* the one that it works on */
    int64_t coming; /* in lane 0: the one behind it */
};

/* The whole warp. */
static __device__ __forceinline__ void
ask_for_task(const struct epx_device_comm &c, const struct crew &crew, struct task_claims &claims)
{
    if (lane_id() == 0)
        claims.coming = crew.num + (int64_t)atomicAdd((unsigned long long *)&c.state->taken, 1ULL);
}

static __device__ __forceinline__ struct task_claims first_claims(const struct epx_device_comm &c,
                                                                  const struct crew &crew)
{
    struct task_claims claims = {crew.warp, 0};

    ask_for_task(c, crew, claims);
    return claims;
}

/* The whole warp: goes on to the next task. */
static __device__ __forceinline__ void
next_task(const struct epx_device_comm &c, const struct crew &crew, struct task_claims &claims)
{
    EPX_DELAY(c);
    claims.task = __shfl_sync(~0u, claims.coming, 0);
    ask_for_task(c, crew, claims);
}

#endif

#endif
