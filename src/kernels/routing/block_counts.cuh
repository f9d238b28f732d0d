/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * block_counts.cuh - between the halves of a routing of ranks that store into each other's memory:
 * from what each block has counted to what the blocks before it have, and all blocks of all ranks.
 *
 *   block_words  in this rank's memory, [counter][block] what the block has counted, and behind
 *                them [block][counter] what the blocks before it have
 *   totals       in every rank's window, [bank][source][count] what all blocks of the source have
 *
 * Every word carries the number of its operation, so that it needs no fence, and blocks need no
 * barrier: each counter has a warp of one block that adds it up. Words are compared with ==, as a
 * route may have been idle for any time; they lie where nothing else is stored.
 *
 * Totals are stored before the ranks have agreed, into the bank of the operation's number. Two
 * banks are enough: a source is in n only after it had the ready words n - 1 of all ranks, which
 * each posts after its operation n - 2, so nobody reads the bank any more. The window of a route
 * that was freed stays until nothing is in flight on any rank (peer_windows.c). After a
 * disagreement no rank waits for totals.
 *
 * tests/model/route.pml checks this.
 */
#ifndef EPX_KERNELS_ROUTING_BLOCK_COUNTS_CUH
#define EPX_KERNELS_ROUTING_BLOCK_COUNTS_CUH

#include "kernels/routing/routing_steps.cuh"

/* What a block has counted. */
static __device__ __forceinline__ uint64_t *word_of_block(const struct epx_route_tokens &a,
                                                          int32_t counter, int32_t block)
{
    return a.plan.block_words + (int64_t)counter * a.comm.blocks + block;
}

/* What the blocks before a block have counted. */
static __device__ __forceinline__ uint64_t *words_before(const struct epx_route_tokens &a,
                                                         int32_t block)
{
    return a.plan.block_words + (int64_t)(a.comm.blocks + block) * num_counters(a);
}

/* The totals of this operation at a rank. */
static __device__ __forceinline__ uint64_t *totals_at(const struct epx_route_tokens &a,
                                                      int32_t rank, uint64_t epoch)
{
    return (uint64_t *)(void *)a.plan.totals[rank] +
           (int64_t)(epoch & 1) * a.comm.num_ranks * num_counts(a);
}

/* The whole block, after its warps have met: sums what they have counted and tells the others. */
static __device__ void tell_blocks(const struct epx_route_tokens &a, uint64_t epoch,
                                   int32_t counting_warps, const int32_t *counts, int32_t *own)
{
    int32_t num = num_counters(a);

    for (int32_t i = (int32_t)threadIdx.x; i < num; i += (int32_t)blockDim.x) {
        int32_t sum = sum_of_warps(counts + i, num, counting_warps);

        own[i] = sum;
        EPX_DELAY(a.comm);
        store_word_sys(word_of_block(a, i, (int32_t)blockIdx.x), tagged(epoch, (uint32_t)sum));
    }
}

/* One warp: tells all ranks the total of a counter. */
static __device__ void tell_ranks(const struct epx_route_tokens &a, uint64_t epoch, int32_t counter,
                                  uint32_t total)
{
    int64_t at = (int64_t)a.comm.rank * num_counts(a) + counter;

    if (counter >= num_counts(a))
        return;
    for (int32_t r = lane_id(); r < a.comm.num_ranks; r += EPX_WARP) {
        EPX_DELAY(a.comm);
        store_word_sys(totals_at(a, r, epoch) + at, tagged(epoch, total));
    }
}

/* One warp: waits for what all blocks have counted; tells each what those before it have, and all
 * ranks the total. False if the operation was given up. */
static __device__ bool add_up_counter(const struct epx_route_tokens &a, uint64_t epoch,
                                      int32_t counter)
{
    uint32_t sum = 0;

    for (int32_t first = 0; first < a.comm.blocks; first += EPX_WARP) {
        int32_t block = first + lane_id();
        bool is = block < a.comm.blocks;
        uint32_t here = 0, through;

        if (!__all_sync(~0u, !is || await_word(a.comm, word_of_block(a, counter, block), epoch,
                                               a.comm.rank, &here)))
            return false;
        through = sum + scan_lanes(here);
        if (is)
            store_word_sys(words_before(a, block) + counter, tagged(epoch, through - here));
        sum = __shfl_sync(~0u, through, EPX_WARP - 1);
    }
    tell_ranks(a, epoch, counter, sum);
    return true;
}

/* The whole block: adds up its share of all counters. */
static __device__ bool add_up_blocks(const struct epx_route_tokens &a, uint64_t epoch)
{
    int32_t warp = (int32_t)threadIdx.x / EPX_WARP, warps = (int32_t)blockDim.x / EPX_WARP;
    int32_t num = num_counters(a);

    EPX_DELAY(a.comm);
    for (int32_t c = warp * a.comm.blocks + (int32_t)blockIdx.x; c < num;
         c += warps * a.comm.blocks)
        if (!add_up_counter(a, epoch, c))
            return false;
    return true;
}

/* The whole block: waits for the totals of all ranks and for what the blocks before have counted.
 * False if the operation was given up. */
static __device__ bool receive_counts(const struct epx_route_tokens &a, struct exchange &x,
                                      int32_t *matrix, int32_t *before)
{
    const uint32_t num = (uint32_t)num_counts(a), all = num * (uint32_t)a.comm.num_ranks;
    const uint64_t *totals = totals_at(a, a.comm.rank, x.epoch);
    const uint64_t *mine = words_before(a, (int32_t)blockIdx.x);
    bool ok = true;

    EPX_DELAY(a.comm);
    for (uint32_t i = threadIdx.x; ok && i < all; i += blockDim.x) {
        uint32_t payload = 0;

        ok = await_word(a.comm, totals + i, x.epoch, (int32_t)(i / num), &payload);
        matrix[i] = (int32_t)payload;
    }
    for (int32_t i = (int32_t)threadIdx.x; ok && i < num_counters(a); i += (int32_t)blockDim.x) {
        uint32_t payload = 0;

        ok = await_word(a.comm, mine + i, x.epoch, a.comm.rank, &payload);
        before[i] = (int32_t)payload;
    }
    ok = all_content(a.comm, x, ok);
    EPX_DELAY(a.comm);
    return ok;
}

#endif
