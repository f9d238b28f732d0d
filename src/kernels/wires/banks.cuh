/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * banks.cuh - how rows travel in an operation that is small: a rank stores them before it knows
 * that the other ranks are ready, and tells of each slice of a row by a flag of its own, or sends
 * it in packets. So an operation is one launch, and a row is on its way as soon as its rank begins.
 * The second half of an operation may be small where the first is not; the ranks have agreed then.
 *
 *   bank[2]   in every rank's window, for operations of even and of odd number: flags, then rows
 *   flag      [row][slice]: the number of the operation whose slice is there. Writer: the warp that
 *             stored the slice, behind a fence; in operation n it sets no flag in bank n - 1.
 *             Grows only, compared with >=; flags lie where no operation stores rows.
 *   row       its bytes, up to a multiple of 16; of several fields those of each, one field behind
 *             the other; then words that go with it, told of by the flag of the first slice. Slices
 *             are cut from all this but the words, so one may have parts of several fields
 *
 * Two banks are enough: s is in n only after it had the ready words n - 1 of all ranks, which each
 * posts after its operation n - 2, so nobody reads the bank any more.
 * Invariant: rows that came in a bank are read, and user memory is written, only after the verdict
 * on the ready words; after a disagreement the rows that came mean nothing, and no rank waits for
 * any. Ranks that differ in how long rows or fields are store their rows at other places of the
 * bank, but within it: each knows that its own rows fit. A rank that is alone stores none.
 * No deadlock: the first `senders` blocks store and wait for nobody; the others, `receivers`, wait
 * for what senders store, so they need not all run at once. In each rank's kernel the senders have
 * lower numbers, so they start first, and if they do not the others leave them room. Where senders
 * wait, too, for weights (few_sums.cuh), all blocks leave room for those of another communicator.
 */
#ifndef EPX_KERNELS_WIRES_BANKS_CUH
#define EPX_KERNELS_WIRES_BANKS_CUH

#include "kernels/args/bank_args.h"
#include "kernels/protocol/phases.cuh"

/* This operation's bank on a rank. */
static __device__ __forceinline__ char *bank_on(const struct epx_device_comm &c,
                                                const struct epx_banks &banks, uint64_t epoch,
                                                int32_t rank)
{
    return banks.bank[(int64_t)(epoch & 1) * c.num_ranks + rank];
}

static __device__ __forceinline__ char *row_in(const struct epx_banks &banks, char *bank,
                                               int64_t row)
{
    return bank + (EPX_BANK_FLAGS + EPX_BANK_WORDS) * sizeof(uint64_t) + row * banks.pitch;
}

/* The words with the ids of all ranks. */
static __device__ __forceinline__ uint64_t *words_of_ids(char *bank)
{
    return (uint64_t *)(void *)bank + EPX_BANK_FLAGS;
}

/* The words that go with a row. */
static __device__ __forceinline__ float *words_in(const struct epx_banks &banks, char *bank,
                                                  int64_t row)
{
    return (float *)(void *)(row_in(banks, bank, row) + banks.words_at);
}

static __device__ __forceinline__ bool is_sender(const struct epx_banks &banks)
{
    return is_sending_block(senders_here(banks.phase, banks.senders));
}

static __device__ __forceinline__ struct crew crew_of(const struct epx_banks &banks)
{
    return crew_of_role(senders_here(banks.phase, banks.senders));
}

/* First step of a small operation, in every block, given what it looked up. */
static __device__ void begin_small(const struct epx_device_comm &c, const struct epx_banks &banks,
                                   const struct epx_ready_note &note, int32_t routing_error,
                                   const struct first_look &look, struct exchange &x)
{
    begin_exchange(c, note, routing_error, look, x, banks.phase == EPX_PHASE_TAKE);
}

/* First step of the second half of an operation, in every block: the ranks have agreed. */
static __device__ __forceinline__ void resume_small(const struct epx_device_comm &c,
                                                    struct exchange &x)
{
    resume_exchange(c, x);
    all_content(c, x, !aborted(c));
}

/* What the last block of a small operation has to know. */
struct small_end {
    const struct epx_ready_note &note;
    struct epx_outcome *routing;
    bool judged; /* the block has the verdict on the ready words */
};

/*
 * The last step of a small operation, in every block. Returns whether this thread is to end the
 * operation: one thread of the last block, which has the verdict then, as it has been there since
 * the blocks before it ended.
 */
static __device__ bool is_last_of_small(const struct epx_device_comm &c,
                                        const struct epx_banks &banks, struct exchange &x,
                                        const struct small_end &end)
{
    bool failed, asks;

    if (banks.phase == EPX_PHASE_SEND) {
        end_senders(c);
        return false;
    }
    if (!is_last_block(c, &x, failed))
        return false;
    asks = !end.judged && !failed && x.outcome.code == EPX_SUCCESS;
    __syncthreads();
    if (asks)
        await_ready(c, end.note, x, end.routing);
    if (threadIdx.x)
        return false;
    if (banks.phase == EPX_PHASE_TAKE)
        failed |= !await_senders(c, banks.senders) || aborted(c);
    note_failure(c, x, failed);
    if (end.routing)
        spoil_routing(c, x, end.routing);
    return true;
}

static inline struct phase_launch small_launch(const struct epx_banks &banks, EPX_Stream stream)
{
    return {banks.phase, banks.senders, banks.receivers, EPX_WAITING_THREADS, 0, stream};
}

#endif
