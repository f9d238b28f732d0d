/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * protocol.cuh - the protocol between the kernels of different ranks, and how operations go on and
 * end; ready_words.cuh is how they begin, waits.cuh how they wait.
 *
 * Kernels of one communicator run one after the other on each rank, in the same order on all
 * ranks, so that operations need no names: every rank counts them, in epx_device_state.epoch.
 * Everything in a control window is written by others and read by its owner.
 *
 *   ready[2][s]   writer s: what s is about to do in operation n, in bank n & 1. Every word carries
 *                 n, so it needs no fence. s posts it after all its earlier work, hence it also
 *                 says: my windows, stages and receive buffer may be written. Two banks are
 *                 enough: s posts n + 2 after it finished n + 1, for which it had the owner's
 *                 ready of n + 1, which the owner posts after all its blocks have read ready n.
 *   arrived[s]    writer s: one more from every block of s after each round, behind a fence that
 *                 follows all stores of the block. Grows only; compared with >=. The number of
 *                 blocks and rounds is the same on all ranks, so the owner knows what to wait for:
 *                 arrivals before the operation + blocks * rounds.
 *   credited[s]   writer s: one more from every block of s, behind a fence, after the block has
 *                 taken from the stage of s what came in the round. Grows only, as arrived. A
 *                 sender stores the next round after the credits of all ranks. The last round gives
 *                 none: the ready of s for the next operation says as much.
 *   counts[2][s]  writer s: alltoallv's counts of operation n, as ready.
 *   packets[2][s] writer s: rows of an alltoallv or of edges, of operation n, if they are few; in
 *                 banks as ready, but needs no ready itself: s is in n, so the owner is done with
 *                 n - 2.
 *   edges[2][i]   writer: the rank where edge i of the operation's graph begins: its count, as
 *                 counts. In n + 2 it may be another rank's edge: that rank is in n + 2, so the
 *                 owner has ended n, for which it had this word.
 *   grants[2][i]  writer: the rank where edge i ends, once all agree in n: where rows go there.
 *   lists[2][s]   writer s: where rows of several fields go, as ready; awaited once the ranks were
 *                 found to agree that they are in such an operation.
 *   abort         0, or who is silent, or whose host gave up for a reason that stands in its own
 *                 window. Decided by compare-and-swap on rank 0's word, which is
 *                 mapped also when rank 0 is dead, then stored to all ranks. Never cleared.
 *
 * Invariant: nothing but words in banks is stored into a rank's windows for operation n before all
 * ranks posted ready n and were found to agree; all ranks see the same words and come to the same
 * verdict. block_counts.cuh and banks.cuh have more words in banks.
 * Post before you wait: ready is posted before the first wait, arrivals of a round before the wait
 * for those of others. No wait depends on a later kernel. A kernel in which all blocks wait has
 * `comm.blocks` of them at most, or twice as many if two fit on a multiprocessor. Every wait ends
 * by the abort word or by the clock, or with that of another block of its kernel, and its kernel
 * ends normally.
 *
 * Order of memory: stores of a block, block barrier, fence.acq_rel.sys and a relaxed add by one
 * thread a peer; there ld.acquire.sys, block barrier, plain loads (never ld.global.nc).
 *
 * tests/model/device.pml checks this, comm_end.pml the abort word.
 */
#ifndef EPX_KERNELS_PROTOCOL_PROTOCOL_CUH
#define EPX_KERNELS_PROTOCOL_PROTOCOL_CUH

#include "kernels/device_plan.h"
#include "kernels/protocol/ready_words.cuh"
#include "kernels/slices.h"

/* Blocks of kernels whose warps take a slice of a row each and wait for nothing. */
static inline unsigned epx_blocks_for_rows(const struct epx_device_comm &c, int64_t rows,
                                           int64_t row_bytes)
{
    const int64_t warps = EPX_WAITING_THREADS / EPX_WARP, most = c.most_blocks;
    int64_t slices = rows * (row_bytes / EPX_LEAST_SLICE_BYTES + 1);
    int64_t blocks = (slices + warps - 1) / warps;

    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

#ifdef __CUDACC__

/* Values of epx_device_comm.half, as in request.h. */
enum { HALF_NONE, HALF_ROUTING, HALF_DISPATCH, HALF_WEIGHTS };

/* Every block calls it after its stores of a round. */
static __device__ void signal_arrival(const struct epx_device_comm &c)
{
    EPX_DELAY(c);
    __syncthreads();
    EPX_DELAY(c);
    for (int32_t r = (int32_t)threadIdx.x; r < c.num_ranks; r += (int32_t)blockDim.x) {
        fence_sys();
        add_relaxed_sys(epx_control_arrived(c.control[r], c.rank), 1);
    }
}

/* rounds: how many of this operation must have arrived from every rank. */
static __device__ bool await_arrivals(const struct epx_device_comm &c, struct exchange &x,
                                      uint64_t rounds)
{
    uint64_t target = x.arrivals + rounds * (uint64_t)c.blocks;
    bool ok = true;

    EPX_DELAY(c);
    for (int32_t r = (int32_t)threadIdx.x; ok && r < c.num_ranks; r += (int32_t)blockDim.x)
        ok = await_at_least(c, epx_control_arrived(c.own_control, r), target, r);
    ok = all_content(c, x, ok);
    EPX_DELAY(c);
    return ok;
}

static __device__ void signal_credit(const struct epx_device_comm &c)
{
    EPX_DELAY(c);
    __syncthreads();
    EPX_DELAY(c);
    for (int32_t r = (int32_t)threadIdx.x; r < c.num_ranks; r += (int32_t)blockDim.x) {
        fence_sys();
        add_relaxed_sys(epx_control_credited(c.control[r], c.num_ranks, c.rank), 1);
    }
}

static __device__ bool await_credits(const struct epx_device_comm &c, struct exchange &x,
                                     uint64_t rounds)
{
    uint64_t target = x.credits + rounds * (uint64_t)c.blocks;
    bool ok = true;

    EPX_DELAY(c);
    for (int32_t r = (int32_t)threadIdx.x; ok && r < c.num_ranks; r += (int32_t)blockDim.x)
        ok = await_at_least(c, epx_control_credited(c.own_control, c.num_ranks, r), target, r);
    ok = all_content(c, x, ok);
    EPX_DELAY(c);
    return ok;
}

/* All blocks of a kernel that waits meet: it has comm.blocks blocks. */
static __device__ void come_to_barrier(const struct epx_device_comm &c)
{
    EPX_DELAY(c);
    __syncthreads();
    if (threadIdx.x == 0)
        add_release_gpu(&c.state->barrier, 1);
}

/* number: which of the kernel's barriers, from 1. */
static __device__ bool await_barrier(const struct epx_device_comm &c, struct exchange &x,
                                     uint64_t number = 1)
{
    bool ok = true;

    if (threadIdx.x == 0) {
        struct patience patience = {0, 0};
        uint64_t blocks = (uint64_t)c.blocks, all = (x.barrier / blocks + number) * blocks;

        while (ok && load_acquire_gpu(&c.state->barrier) < all)
            ok = keep_waiting(c, patience, c.rank);
    }
    ok = all_content(c, x, ok);
    EPX_DELAY(c);
    return ok;
}

/*
 * One thread: tells the host how the operation ended. The word may start the next operation on
 * another stream before this kernel ends, and the user's work on the results. So the fence comes
 * first: what all blocks wrote, which this thread has acquired, is seen by whoever sees the word.
 */
static __device__ void complete(const struct epx_device_comm &c, int64_t rows,
                                const struct epx_outcome &outcome)
{
    struct epx_completion *to = c.completion;
    bool fine;

    if (c.captured && (outcome.code == EPX_SUCCESS || *(volatile uint64_t *)&to->word))
        return;
    fine = outcome.code == EPX_SUCCESS && rows < EPX_COMPLETION_DETAILS;
    EPX_DELAY(c);
    if (!fine) {
        to->rows = rows;
        to->outcome = outcome;
    }
    fence_sys();
    EPX_DELAY(c);
    store_relaxed_sys(&to->word,
                      (uint64_t)c.number << 32 | (fine ? (uint32_t)rows : EPX_COMPLETION_DETAILS));
}

/* One thread of the last block of an operation of one kernel: the outcome, where another block was
 * given up and this one was not. */
static __device__ __forceinline__ void note_failure(const struct epx_device_comm &c,
                                                    struct exchange &x, bool any_failed)
{
    if (any_failed && x.outcome.code == EPX_SUCCESS)
        x.outcome = outcome_of_abort(c);
}

/* The last step of an operation whose last kernel has one step, by one thread of its last block. */
static __device__ void end_exchange(const struct epx_device_comm &c, const struct exchange &x,
                                    uint64_t rounds, uint64_t credit_rounds, int64_t rows,
                                    const struct epx_outcome &outcome)
{
    c.state->epoch = x.epoch;
    c.state->arrivals = x.arrivals + rounds * (uint64_t)c.blocks;
    c.state->credits = x.credits + credit_rounds * (uint64_t)c.blocks;
    complete(c, rows, outcome);
}

/* The last step of an operation of several kernels, by one thread of the last block; the first
 * kernel has called hand_over. Kernels without waits may have seen the abort word since. Weights
 * that go before the sums of a combine end nothing. */
static __device__ void end_operation(const struct epx_device_comm &c, int64_t rows)
{
    struct epx_outcome outcome = c.state->outcome;

    if (c.half == HALF_WEIGHTS)
        return;
    if (outcome.code == EPX_SUCCESS && aborted(c))
        outcome = outcome_of_abort(c);
    else if (outcome.code == EPX_SUCCESS && c.half == HALF_DISPATCH)
        outcome = c.state->ids;
    c.state->epoch++;
    c.state->arrivals += c.state->rounds * (uint64_t)c.blocks;
    c.state->credits += c.state->credit_rounds * (uint64_t)c.blocks;
    complete(c, rows, outcome);
}

/* One thread of one block: the first kernel leaves to the next ones what it found out. */
static __device__ void hand_over(const struct epx_device_comm &c, const struct exchange &x,
                                 uint64_t rounds, bool deferred, struct epx_outcome *routing)
{
    if (routing)
        spoil_routing(c, x, routing);
    EPX_DELAY(c);
    c.state->rounds = rounds;
    c.state->credit_rounds = deferred || rounds == 0 ? 0 : rounds - 1;
    c.state->deferred = deferred;
    c.state->weighted = weights_come(x);
    c.state->outcome = x.outcome;
}

/*
 * One thread of the last block: ends the routing that is the first half of an operation. The
 * kernels of the dispatch go on with the same number and what the ranks agreed on, unless the
 * routing failed; the last of them tells the host of bad ids.
 */
static __device__ void hand_over_routing(const struct epx_device_comm &c, const struct exchange &x,
                                         uint64_t rounds, const struct epx_outcome &ids)
{
    c.state->arrivals = x.arrivals + rounds * (uint64_t)c.blocks;
    c.state->ids = ids;
    hand_over(c, x, 0, false, NULL);
}

/* What blocks add to epx_device_state.ended: one each, and whether it was given up or remarked. */
enum { ENDED_FAILED = 32, ENDED_REMARKED = 48 };

/*
 * Whether this is the last block of its kernel to end; it sees what all others wrote, whether any
 * of them was given up, and in x->remarks whether any of them had some. x is NULL in kernels that
 * wait for nothing. Behind it no block waits for another rank, so the next kernel may begin.
 */
static __device__ bool is_last_block(const struct epx_device_comm &c, struct exchange *x,
                                     bool &any_failed)
{
    __shared__ uint64_t ended;

    EPX_DELAY(c);
    __syncthreads();
    let_next_kernel_begin();
    if (threadIdx.x == 0) {
        uint64_t told = x ? (uint64_t)(x->outcome.what == EPX_OUTCOME_SILENT) << ENDED_FAILED |
                                (uint64_t)(x->remarks != 0) << ENDED_REMARKED
                          : 0;

        ended = fetch_add_acq_rel_gpu(&c.state->ended, told | 1) + told;
        if ((uint32_t)ended == gridDim.x - 1)
            c.state->ended = 0;
        if (x)
            x->remarks = (uint32_t)(ended >> ENDED_REMARKED);
    }
    __syncthreads();
    any_failed = ended >> ENDED_FAILED & 0xffff;
    return (uint32_t)ended == gridDim.x - 1;
}

static __device__ bool is_last_block(const struct epx_device_comm &c)
{
    bool any_failed;

    return is_last_block(c, NULL, any_failed);
}

/* What a later kernel of the operation knows of it: everybody's ready words are there. */
static __device__ void resume_exchange(const struct epx_device_comm &c, struct exchange &x)
{
    if (threadIdx.x == 0) {
        x.epoch = c.state->epoch + 1;
        x.arrivals = c.state->arrivals;
        x.credits = c.state->credits;
        x.outcome = c.state->outcome;
        x.findings = c.state->weighted ? FOUND_GIVEN : 0;
        x.remarks = 0;
    }
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < c.num_ranks * EPX_READY_WORDS;
         i += (int32_t)blockDim.x)
        x.ready[i] = (uint32_t)load_relaxed_sys(
            epx_control_ready(c.own_control, c.num_ranks, (uint32_t)x.epoch, 0) + i);
    __syncthreads();
}

/* The whole first block: tells all ranks where rows of the fields behind the first go. */
static __device__ void post_list(const struct epx_device_comm &c, const struct epx_list_note &note,
                                 const struct exchange &x)
{
    for (int32_t i = (int32_t)threadIdx.x; i < c.num_ranks * EPX_LIST_WORDS;
         i += (int32_t)blockDim.x) {
        char *control = c.control[i / EPX_LIST_WORDS];
        int32_t word = i % EPX_LIST_WORDS;

        EPX_DELAY(c);
        store_relaxed_sys(epx_control_lists(control, c.num_ranks, (uint32_t)x.epoch, c.rank) + word,
                          tagged(x.epoch, note.word[word]));
    }
}

/* All blocks, after the ranks were found to agree: waits for what post_list posts. */
static __device__ bool await_list(const struct epx_device_comm &c, struct exchange &x)
{
    const uint64_t *own = epx_control_lists(c.own_control, c.num_ranks, (uint32_t)x.epoch, 0);
    bool ok = true;

    EPX_DELAY(c);
    for (int32_t i = (int32_t)threadIdx.x; ok && i < c.num_ranks * EPX_LIST_WORDS;
         i += (int32_t)blockDim.x) {
        uint32_t payload;

        ok = await_tagged(c, own + i, (uint32_t)x.epoch, i / EPX_LIST_WORDS, &payload);
    }
    return all_content(c, x, ok);
}

/*
 * All blocks: whether the ranks agree on an operation that moves rows, and where the rows of a list
 * of fields go has come; list is NULL if there is none. If the operation's first half was a
 * routing, the ranks have agreed.
 */
static __device__ bool begin_moves(const struct epx_device_comm &c,
                                   const struct epx_ready_note &note,
                                   const struct epx_list_note *list,
                                   const struct epx_outcome *routing, struct exchange &x)
{
    bool agreed;

    if (c.half == HALF_DISPATCH) {
        resume_exchange(c, x);
        agreed = x.outcome.code == EPX_SUCCESS && all_content(c, x, !aborted(c));
        if (list && agreed && blockIdx.x == 0)
            post_list(c, *list, x);
    } else {
        begin_exchange(c, note, routing->code, look_first(c), x);
        if (list && x.outcome.code == EPX_SUCCESS && blockIdx.x == 0)
            post_list(c, *list, x);
        agreed = x.outcome.code == EPX_SUCCESS && await_ready(c, note, x, routing);
    }
    return agreed && (!list || await_list(c, x));
}

/* Whether a later kernel has anything to do. */
static __device__ bool is_on(const struct epx_device_comm &c)
{
    EPX_DELAY(c);
    return __syncthreads_and(c.state->outcome.code == EPX_SUCCESS && !aborted(c));
}

/* Adds without waiting for the value that was there. */
static __device__ __forceinline__ void add_to(uint64_t *sum, uint64_t value)
{
    atomicAdd((unsigned long long *)sum, (unsigned long long)value);
}

/* One thread: adds rows that were sent to the statistics. */
static __device__ void add_rows(const struct epx_device_comm &c, uint64_t self, uint64_t node,
                                uint64_t network, int64_t row_bytes)
{
    struct epx_device_stats *stats = &c.state->stats;
    uint64_t bytes = (uint64_t)row_bytes;

    if (c.half == HALF_WEIGHTS) /* no row of a user travels */
        return;
    add_to(&stats->rows_self, self);
    add_to(&stats->rows_node, node);
    add_to(&stats->rows_network, network);
    add_to(&stats->bytes_self, self * bytes);
    add_to(&stats->bytes_node, node * bytes);
    add_to(&stats->bytes_network, network * bytes);
}

/* One thread: counts the rows sent to each rank. */
template <typename Count>
static __device__ void count_rows(const struct epx_device_comm &c, const Count *rows,
                                  int64_t row_bytes)
{
    uint64_t node = 0, network = 0;

    for (int32_t r = 0; r < c.num_ranks; r++)
        if (c.node && c.node[r] != c.node[c.rank])
            network += (uint64_t)rows[r];
        else
            node += (uint64_t)rows[r];
    add_rows(c, (uint64_t)rows[c.rank], node - (uint64_t)rows[c.rank], network, row_bytes);
}

/*
 * One thread: counts the rows that an operation on a route has sent to each rank. With relays node
 * rows are counted where they leave their node; counted here, in both directions, are the rows
 * between this rank and the relays of its node.
 */
static __device__ void count_route_rows(const struct epx_device_comm &c,
                                        const struct epx_device_plan &plan, const int32_t *rows,
                                        int64_t row_bytes)
{
    uint64_t node = 0;

    if (plan.nodes.num_nodes == 0) {
        count_rows(c, rows, row_bytes);
        return;
    }
    for (int32_t r = 0; r < c.num_ranks; r++)
        if (r != c.rank && plan.nodes.server[r] != c.rank)
            node += (uint64_t)(plan.nodes.server[r] == r ? rows[r] : plan.recv_rows[r]);
    add_rows(c, (uint64_t)rows[c.rank], node, 0, row_bytes);
}

/* The whole warp: node rows that leave this node, as each lane has counted them. */
static __device__ void count_node_rows(const struct epx_device_comm &c, int32_t num,
                                       int64_t row_bytes)
{
    num = __reduce_add_sync(~0u, num);
    if (num && lane_id() == 0)
        add_rows(c, 0, 0, (uint64_t)num, row_bytes);
}

#endif

#endif
