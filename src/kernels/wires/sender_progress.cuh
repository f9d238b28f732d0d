/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sender_progress.cuh - how far the senders of each rank are in a large operation, so that what has
 * come is taken while more is on its way.
 *
 *   progress[s][w]  writer s: how far its senders are with run w of operation n, as n << 32 | step,
 *                   behind a fence. It only grows, and tells of no other operation: it may be of
 *                   long ago. In dispatch a run is some tasks, and step how many of them are done,
 *                   the same for all owners; in combine it is a slice of a chunk of the token
 *                   numbers, and step one more than the last token of the owner.
 *   begun[s]        writer s: the last operation all of whose senders have multiprocessors. What
 *                   they have not sent yet will come, whatever else waits for multiprocessors.
 *
 * Invariants: only the warp that claimed run w (task_claims.cuh) writes the word in operation n,
 * which ends before anybody claims runs of n + 1. It stores to an owner for operation n after the
 * owner posted ready n, hence after the owner's receivers of all earlier operations ended: so what
 * they took is not written over, and they saw no word of n. A kernel of its own waits for ready n,
 * before that of the senders, whose griddepcontrol.wait returns when all that it did can be seen:
 * so bulk stores need no fence of their own first. Senders wait for nobody until they have sent,
 * and begin before the receivers: so all receivers may wait.
 */
#ifndef EPX_KERNELS_WIRES_SENDER_PROGRESS_CUH
#define EPX_KERNELS_WIRES_SENDER_PROGRESS_CUH

#include "kernels/protocol/waits.cuh"

#ifdef __CUDACC__

/* One lane, after its warp's stores and __syncwarp: tells a rank how far run w is. */
static __device__ __forceinline__ void tell_rank(const struct epx_device_comm &c, uint64_t epoch,
                                                 int32_t rank, int32_t w, int64_t step)
{
    fence_release_sys();
    store_relaxed_sys(epx_control_progress(c.control[rank], c.num_ranks, c.rank) + w,
                      tagged(epoch, (uint32_t)step));
}

/* The whole warp, after await_stores: tells all other ranks how far run w is. */
static __device__ void tell_progress(const struct epx_device_comm &c, uint64_t epoch, int32_t w,
                                     int64_t step)
{
    EPX_DELAY(c);
    for (int32_t r = lane_id(); r < c.num_ranks; r += EPX_WARP)
        if (r != c.rank)
            tell_rank(c, epoch, r, w, step);
    __syncwarp();
}

/* A block that sends, first of all: the last one that begins tells all other ranks so. */
static __device__ void begin_to_send(const struct epx_device_comm &c, uint64_t epoch,
                                     int32_t senders)
{
    uint64_t before = 0;

    if (threadIdx.x >= EPX_WARP)
        return;
    EPX_DELAY(c);
    if (lane_id() == 0)
        before = atomicAdd((unsigned long long *)&c.state->begun, 1ULL);
    if (__shfl_sync(~0u, before, 0) + 1 != (uint64_t)senders)
        return;
    for (int32_t r = lane_id(); r < c.num_ranks; r += EPX_WARP)
        if (r != c.rank)
            store_word_sys(epx_control_begun(c.control[r], c.num_ranks, c.rank), epoch);
}

/* The whole warp: whether the senders of all other ranks have begun. */
static __device__ bool all_have_begun(const struct epx_device_comm &c, uint64_t epoch)
{
    bool ok = true;

    EPX_DELAY(c);
    for (int32_t r = lane_id(); r < c.num_ranks; r += EPX_WARP)
        ok = ok && (r == c.rank ||
                    load_relaxed_sys(epx_control_begun(c.own_control, c.num_ranks, r)) == epoch);
    return __all_sync(~0u, ok);
}

/* One thread: whether run w of a rank has come to a step. */
static __device__ __forceinline__ bool has_progress(const struct epx_device_comm &c, uint64_t epoch,
                                                    int32_t source, int32_t w, int64_t step)
{
    const uint64_t word =
        load_relaxed_sys(epx_control_progress(c.own_control, c.num_ranks, source) + w);

    return (uint32_t)(word >> 32) == (uint32_t)epoch && (uint32_t)word >= (uint32_t)step;
}

/* One thread: waits until run w of a rank has come to a step. What came until then can be read
 * after acquire_progress, or after acquire_words if by no bulk copy. */
static __device__ bool await_progress(const struct epx_device_comm &c, uint64_t epoch,
                                      int32_t source, int32_t w, int64_t step)
{
    struct patience patience = {0, 0};

    EPX_DELAY(c);
    while (!has_progress(c, epoch, source, w, step))
        if (!keep_waiting(c, patience, source))
            return false;
    return true;
}

/* The whole warp, after each lane's last await_progress: returns whether all lanes were content.
 * Then what came can be read, by bulk copies too. */
static __device__ __forceinline__ bool acquire_progress(const struct epx_device_comm &c, bool ok)
{
    ok = acquire_words(c, ok);
#if HAS_BULK_COPIES
    fence_bulk_copies();
#endif
    return ok;
}

#endif

#endif
