/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.cuh - what kernels share that only nvcc understands: order of memory, bounded waits,
 * and the protocol between the kernels of different ranks.
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
 *   credited[s]   writer s: the same after each block of s has taken from its stage what came in
 *                 the round. A sender stores the next round after the credits of all ranks. The
 *                 last round gives none: the ready of the next operation says the same.
 *   counts[2][s]  writer s: alltoallv's counts of operation n, as ready.
 *   packets[2][s] writer s: alltoallv's rows of operation n, if they are few; in banks as ready,
 *                 but needs no ready itself: s is in n, so the owner is done with n - 2.
 *   abort         0, or who is silent, or whose host gave up for a reason that stands in its own
 *                 window. Decided by compare-and-swap on rank 0's word, which is
 *                 mapped also when rank 0 is dead, then stored to all ranks. Never cleared.
 *
 * Invariant: nothing but words in banks is stored into a rank's windows for operation n before all
 * ranks posted ready n and were found to agree; all ranks see the same words and come to the same
 * verdict.
 * Post before you wait: ready is posted before the first wait, arrivals of a round before the wait
 * for those of others. No wait depends on a later kernel; blocks that wait are `comm.blocks` at
 * most. Every wait ends by the abort word or by the clock, and its kernel ends normally.
 *
 * Order of memory: stores of a block, block barrier, fence.acq_rel.sys and a relaxed add by one
 * thread a peer; there ld.acquire.sys, block barrier, plain loads (never ld.global.nc).
 */
#ifndef EPX_KERNELS_DEVICE_CUH
#define EPX_KERNELS_DEVICE_CUH

#include <cuda_runtime.h>

#include "device.h"
#include "jitter.cuh"

enum : int64_t { EPX_BLOCK_THREADS = 256, EPX_MOST_BLOCKS = 1024 };

/* Blocks that keep all links busy with stores of rows and leave the rest of the device to those
 * that spread the chunk before; blocks of kernels that are alone. */
enum : int64_t { EPX_STORING_BLOCKS = 64, EPX_ROW_BLOCKS = 132 * 4 };

/* Blocks for n independent items, one thread each, that stride over what is left. */
static inline unsigned epx_blocks_for(int64_t n)
{
    int64_t blocks = (n + EPX_BLOCK_THREADS - 1) / EPX_BLOCK_THREADS;

    if (blocks > EPX_MOST_BLOCKS)
        blocks = EPX_MOST_BLOCKS;
    return (unsigned)(blocks < 1 ? 1 : blocks);
}

/* Blocks of kernels whose warps take a slice of a row each and wait for nothing. */
static inline unsigned epx_blocks_for_rows(int64_t rows, int64_t row_bytes, int64_t most)
{
    const int64_t warps = EPX_WAITING_THREADS / EPX_WARP;
    int64_t slices = rows * (row_bytes / EPX_LEAST_SLICE_BYTES + 1);
    int64_t blocks = (slices + warps - 1) / warps;

    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

static inline int epx_cuda_status(cudaError_t error)
{
    return error == cudaSuccess ? EPX_SUCCESS : EPX_ERR_CUDA;
}

#ifdef __CUDACC__

/* Of what runs seldom: kept out of the way of what always does, whose code must be fetched too. */
#define EPX_COLD __noinline__

static __device__ __forceinline__ uint64_t load_acquire_sys(const uint64_t *p)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t load_relaxed_sys(const uint64_t *p)
{
    uint64_t value;

    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t load_acquire_gpu(const uint64_t *p)
{
    uint64_t value;

    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

static __device__ __forceinline__ void store_relaxed_sys(uint64_t *p, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

static __device__ __forceinline__ void add_relaxed_sys(uint64_t *p, uint64_t value)
{
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

static __device__ __forceinline__ void add_release_gpu(uint64_t *p, uint64_t value)
{
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

static __device__ __forceinline__ uint64_t fetch_add_acq_rel_gpu(uint64_t *p, uint64_t value)
{
    uint64_t before;

    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(p), "l"(value)
                 : "memory");
    return before;
}

static __device__ __forceinline__ void fence_sys()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

static __device__ __forceinline__ uint64_t global_timer_ns()
{
    uint64_t now;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

static __device__ __forceinline__ int32_t lane_id()
{
    return (int32_t)(threadIdx.x % EPX_WARP);
}

static __device__ __forceinline__ int32_t global_warp()
{
    return (int32_t)((blockIdx.x * blockDim.x + threadIdx.x) / EPX_WARP);
}

static __device__ __forceinline__ int32_t num_global_warps()
{
    return (int32_t)(gridDim.x * (blockDim.x / EPX_WARP));
}

/* Sums of counts stay at the largest number. */
static __device__ __forceinline__ int64_t add_capped(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

/* Over the lanes of a warp. */
static __device__ int64_t inclusive_scan(int64_t value)
{
    for (int32_t d = 1; d < EPX_WARP; d *= 2) {
        int64_t below = __shfl_up_sync(~0u, value, d);

        value = lane_id() >= d ? add_capped(value, below) : value;
    }
    return value;
}

/* What a block knows of the operation under way; in shared memory. */
struct exchange {
    uint64_t epoch, arrivals, credits; /* the last two before the operation */
    uint64_t barrier;                  /* at least the blocks that came to barriers before it */
    struct epx_outcome outcome;
    int32_t weighted;
    uint32_t findings; /* of the ready words, enum finding */
    uint32_t ready[EPX_MOST_DEVICE_RANKS * EPX_READY_WORDS];
};

static __device__ __forceinline__ uint64_t *abort_word(const struct epx_device_comm &c,
                                                       int32_t rank)
{
    return (uint64_t *)(void *)c.control[rank];
}

/* The rank that is furthest behind: in operations begun, then in rounds. */
static __device__ EPX_COLD int32_t find_culprit(const struct epx_device_comm &c,
                                                int32_t waiting_for)
{
    char *own = c.own_control;
    uint64_t least = ~0ULL, least_arrived = ~0ULL;
    int32_t culprit = waiting_for;

    for (int32_t i = 0; i < c.num_ranks; i++) {
        int32_t r = (waiting_for + i) % c.num_ranks;
        uint64_t even = load_relaxed_sys(epx_control_ready(own, c.num_ranks, 0, r)) >> 32;
        uint64_t odd = load_relaxed_sys(epx_control_ready(own, c.num_ranks, 1, r)) >> 32;
        uint64_t begun = even > odd ? even : odd;
        uint64_t arrived = load_relaxed_sys(epx_control_arrived(own, r));

        if (r == c.rank || begun > least || (begun == least && arrived >= least_arrived))
            continue;
        least = begun;
        least_arrived = arrived;
        culprit = r;
    }
    return culprit;
}

/* Ends the communicator on all ranks; the first to come decides whom it names. */
static __device__ EPX_COLD void give_up(const struct epx_device_comm &c, int32_t verb,
                                        int32_t culprit)
{
    uint64_t mine = (uint64_t)(uint32_t)verb << 32 | (uint32_t)(culprit + 1);
    uint64_t first = atomicCAS_system((unsigned long long *)abort_word(c, 0), 0ULL,
                                      (unsigned long long)mine);

    for (int32_t r = 0; r < c.num_ranks; r++) {
        EPX_DELAY(c);
        store_relaxed_sys(abort_word(c, r), first ? first : mine);
    }
}

static __device__ bool aborted(const struct epx_device_comm &c)
{
    return load_relaxed_sys((uint64_t *)(void *)c.own_control) != 0;
}

static __device__ EPX_COLD struct epx_outcome outcome_of_abort(const struct epx_device_comm &c)
{
    uint64_t word = load_relaxed_sys((uint64_t *)(void *)c.own_control);
    struct epx_outcome outcome = {EPX_ERR_TIMEOUT, EPX_OUTCOME_SILENT, 0, 0, 0, 0, 0};

    outcome.rank = (int32_t)(uint32_t)word - 1;
    outcome.a = (int64_t)(word >> 32);
    return outcome;
}

/* The clock of one wait: whether to go on. */
struct patience {
    uint64_t start_ns;
    uint32_t spins;
};

/* Now and then: when the wait began, or 0 if it is over because of time or another rank. */
static __device__ EPX_COLD uint64_t check_patience(const struct epx_device_comm &c,
                                                   uint64_t start_ns, int32_t waiting_for)
{
    uint64_t now;

    if (aborted(c))
        return 0;
    now = global_timer_ns();
    start_ns = start_ns ? start_ns : now;
    if (!c.timeout_ns || now - start_ns < c.timeout_ns)
        return start_ns;
    give_up(c, c.verb, find_culprit(c, waiting_for));
    return 0;
}

static __device__ __forceinline__ bool keep_waiting(const struct epx_device_comm &c,
                                                    struct patience &p, int32_t waiting_for)
{
    if (++p.spins % 128)
        return true;
    p.start_ns = check_patience(c, p.start_ns, waiting_for);
    return p.start_ns != 0;
}

static __device__ bool await_at_least(const struct epx_device_comm &c, const uint64_t *word,
                                      uint64_t target, int32_t waiting_for)
{
    struct patience patience = {0, 0};

    while (load_acquire_sys(word) < target)
        if (!keep_waiting(c, patience, waiting_for))
            return false;
    return true;
}

/* A word that carries the number of its operation. */
static __device__ bool await_tagged(const struct epx_device_comm &c, const uint64_t *word,
                                    uint32_t epoch, int32_t waiting_for, uint32_t *payload)
{
    struct patience patience = {0, 0};
    uint64_t value;

    while ((int32_t)((uint32_t)((value = load_relaxed_sys(word)) >> 32) - epoch) < 0)
        if (!keep_waiting(c, patience, waiting_for))
            return false;
    *payload = (uint32_t)value;
    return true;
}

static __device__ __forceinline__ uint64_t tagged(uint64_t epoch, uint32_t payload)
{
    return epoch << 32 | payload;
}

/* Whether every thread of the block is content; if not the operation has been given up. */
static __device__ bool all_content(const struct epx_device_comm &c, struct exchange &x, bool ok)
{
    if (__syncthreads_and(ok))
        return true;
    if (threadIdx.x == 0 && x.outcome.code == EPX_SUCCESS)
        x.outcome = outcome_of_abort(c);
    __syncthreads();
    return false;
}

/* Where a thread's ready word goes; looked up before its value is known. */
static __device__ __forceinline__ char *control_of_word(const struct epx_device_comm &c, int32_t i)
{
    return i < c.num_ranks * EPX_READY_WORDS ? c.control[i / EPX_READY_WORDS] : NULL;
}

static __device__ void post_ready(const struct epx_device_comm &c,
                                  const struct epx_ready_note &note, int32_t routing_error,
                                  const struct exchange &x, char *control)
{
    for (int32_t i = (int32_t)threadIdx.x; i < c.num_ranks * EPX_READY_WORDS;
         i += (int32_t)blockDim.x, control = control_of_word(c, i)) {
        int32_t word = i % EPX_READY_WORDS;
        uint64_t *to = epx_control_ready(control, c.num_ranks, (uint32_t)x.epoch, c.rank);
        uint32_t payload = word == EPX_READY_ERROR ? (uint32_t)routing_error : note.word[word];

        EPX_DELAY(c);
        store_relaxed_sys(to + word, tagged(x.epoch, payload));
    }
}

/* First step of every kernel that begins an operation; the first block tells the others. */
static __device__ void begin_exchange(const struct epx_device_comm &c,
                                      const struct epx_ready_note &note, int32_t routing_error,
                                      struct exchange &x)
{
    char *control = blockIdx.x == 0 ? control_of_word(c, (int32_t)threadIdx.x) : NULL;

    if (threadIdx.x == 0) {
        x.epoch = c.state->epoch + 1;
        x.arrivals = c.state->arrivals;
        x.credits = c.state->credits;
        x.barrier = c.state->barrier;
        x.outcome = epx_outcome();
        x.weighted = 0;
        x.findings = 0;
    }
    EPX_DELAY(c);
    if (all_content(c, x, !aborted(c)) && blockIdx.x == 0)
        post_ready(c, note, routing_error, x, control);
}

static __device__ __forceinline__ uint32_t ready_word(const struct exchange &x, int32_t rank,
                                                      int32_t word)
{
    return x.ready[rank * EPX_READY_WORDS + word];
}

static __device__ __forceinline__ int64_t ready_long(const struct exchange &x, int32_t rank,
                                                     int32_t low)
{
    return (int64_t)((uint64_t)ready_word(x, rank, low + 1) << 32 | ready_word(x, rank, low));
}

/* Whether the rank's receive buffer can be stored into; else rows go through its stage. */
static __device__ __forceinline__ bool is_direct(const struct exchange &x, int32_t rank)
{
    return (int32_t)ready_word(x, rank, EPX_READY_SEGMENT) >= 0;
}

/* The first word of the first rank that is not as rank 0's. */
static __device__ EPX_COLD void find_difference(const struct epx_device_comm &c, struct exchange &x)
{
    for (int32_t i = 0; i < c.num_ranks * EPX_READY_COMPARED; i++) {
        int32_t rank = i / EPX_READY_COMPARED, word = i % EPX_READY_COMPARED;
        int32_t low = word == EPX_READY_ROW_HIGH ? EPX_READY_ROW_LOW : word;
        bool wide = low == EPX_READY_ROW_LOW;

        if (ready_word(x, rank, word) == ready_word(x, 0, word))
            continue;
        x.outcome.code = EPX_ERR_ARG;
        x.outcome.what = EPX_OUTCOME_DIFFERS;
        x.outcome.rank = rank;
        x.outcome.a = low;
        x.outcome.b = wide ? ready_long(x, 0, low) : (int32_t)ready_word(x, 0, low);
        x.outcome.c = wide ? ready_long(x, rank, low) : (int32_t)ready_word(x, rank, low);
        return;
    }
}

/* Values of EPX_READY_WEIGHTS, as in coll/ready.h; of EPX_READY_VERB, as in request.h. */
enum { WEIGHTS_NONE, WEIGHTS_GIVEN, WEIGHTS_EITHER };
enum { ROUTE_TOKENS = 0 };

static __device__ EPX_COLD void find_weights(const struct epx_device_comm &c, struct exchange &x)
{
    int32_t given = -1, none = -1;

    for (int32_t r = c.num_ranks - 1; r >= 0; r--) {
        uint32_t told = ready_word(x, r, EPX_READY_WEIGHTS);

        given = told == WEIGHTS_GIVEN ? r : given;
        none = told == WEIGHTS_NONE ? r : none;
    }
    x.outcome.code = EPX_ERR_ARG;
    x.outcome.what = EPX_OUTCOME_WEIGHTS;
    x.outcome.rank = none;
    x.outcome.a = given;
}

static __device__ EPX_COLD void find_routing_error(const struct epx_device_comm &c,
                                                   struct exchange &x,
                                                   const struct epx_outcome *routing)
{
    if (routing && routing->code != EPX_SUCCESS) {
        x.outcome = *routing;
        return;
    }
    for (int32_t r = c.num_ranks - 1; r >= 0; r--) {
        if (ready_word(x, r, EPX_READY_ERROR) == EPX_SUCCESS)
            continue;
        x.outcome.code = (int32_t)ready_word(x, r, EPX_READY_ERROR);
        x.outcome.what = EPX_OUTCOME_ROUTING;
        x.outcome.rank = r;
    }
}

/* What the ready words of all ranks say, each thread of its own. */
enum finding { FOUND_GIVEN = 1, FOUND_NONE = 2, FOUND_DIFFERENCE = 4, FOUND_ERROR = 8 };

/* A rank differs from some other if and only if it differs from this one, or this one does too. */
static __device__ uint32_t findings_of(const struct epx_ready_note &note, int32_t word,
                                       uint32_t payload)
{
    if (word < EPX_READY_COMPARED)
        return payload != note.word[word] ? FOUND_DIFFERENCE : 0;
    if (word == EPX_READY_WEIGHTS)
        return payload == WEIGHTS_GIVEN ? FOUND_GIVEN : payload == WEIGHTS_NONE ? FOUND_NONE : 0;
    return word == EPX_READY_ERROR && payload != EPX_SUCCESS ? FOUND_ERROR : 0;
}

/* The whole block: the verdict on everybody's words. All ranks come to the same. */
static __device__ bool judge_ready(const struct epx_device_comm &c, struct exchange &x,
                                   const struct epx_outcome *routing)
{
    const uint32_t both = FOUND_GIVEN | FOUND_NONE;
    bool agreed = !(x.findings & (FOUND_DIFFERENCE | FOUND_ERROR)) && (x.findings & both) != both;

    if (threadIdx.x == 0) {
        x.weighted = (x.findings & FOUND_GIVEN) != 0;
        if (x.findings & FOUND_DIFFERENCE)
            find_difference(c, x);
        else if ((x.findings & both) == both)
            find_weights(c, x);
        else if (x.findings & FOUND_ERROR)
            find_routing_error(c, x, routing);
    }
    __syncthreads();
    return agreed;
}

/* After a disagreement a routing that any rank called is void: this rank's, if it is that. */
static __device__ EPX_COLD void spoil_routing(const struct epx_device_comm &c,
                                              const struct exchange &x,
                                              struct epx_outcome *routing)
{
    if (x.outcome.what != EPX_OUTCOME_DIFFERS && x.outcome.what != EPX_OUTCOME_WEIGHTS)
        return;
    for (int32_t r = 0; r < c.num_ranks; r++)
        if (ready_word(x, r, EPX_READY_VERB) == ROUTE_TOKENS &&
            ready_word(x, r, EPX_READY_ROUTE) == ready_word(x, c.rank, EPX_READY_ROUTE))
            *routing = x.outcome;
}

/*
 * All blocks, before the first store into another rank's memory: waits for the ready words of
 * all ranks and compares them. routing is NULL for operations that stand on none; content is
 * whether what this thread waited for beside them has come.
 */
static __device__ bool await_ready(const struct epx_device_comm &c,
                                   const struct epx_ready_note &note, struct exchange &x,
                                   const struct epx_outcome *routing, bool content = true)
{
    const uint64_t *own = epx_control_ready(c.own_control, c.num_ranks, (uint32_t)x.epoch, 0);
    bool ok = content && x.outcome.code == EPX_SUCCESS;

    EPX_DELAY(c);
    for (int32_t i = (int32_t)threadIdx.x; ok && i < c.num_ranks * EPX_READY_WORDS;
         i += (int32_t)blockDim.x) {
        uint32_t payload = 0, found;

        ok = await_tagged(c, own + i, (uint32_t)x.epoch, i / EPX_READY_WORDS, &payload);
        found = findings_of(note, i % EPX_READY_WORDS, payload);
        x.ready[i] = payload;
        if (ok && found)
            atomicOr(&x.findings, found);
    }
    ok = all_content(c, x, ok) && judge_ready(c, x, routing);
    EPX_DELAY(c);
    return ok;
}

/* After the block's stores of a round. */
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

/* All blocks of a kernel that waits meet, once in a kernel: it has comm.blocks blocks. */
static __device__ void come_to_barrier(const struct epx_device_comm &c)
{
    EPX_DELAY(c);
    __syncthreads();
    if (threadIdx.x == 0)
        add_release_gpu(&c.state->barrier, 1);
}

static __device__ bool await_barrier(const struct epx_device_comm &c, struct exchange &x)
{
    bool ok = true;

    if (threadIdx.x == 0) {
        struct patience patience = {0, 0};
        uint64_t blocks = (uint64_t)c.blocks, all = (x.barrier / blocks + 1) * blocks;

        while (ok && load_acquire_gpu(&c.state->barrier) < all)
            ok = keep_waiting(c, patience, c.rank);
    }
    ok = all_content(c, x, ok);
    EPX_DELAY(c);
    return ok;
}

/* Tells the host; one thread. */
static __device__ void complete(const struct epx_device_comm &c, int64_t rows,
                                const struct epx_outcome &outcome)
{
    struct epx_completion *to = c.completion;
    bool fine = outcome.code == EPX_SUCCESS && rows < EPX_COMPLETION_DETAILS;

    if (c.captured && (outcome.code == EPX_SUCCESS || *(volatile uint64_t *)&to->word))
        return;
    EPX_DELAY(c);
    if (!fine) {
        to->rows = rows;
        to->outcome = outcome;
        fence_sys();
        EPX_DELAY(c);
    }
    store_relaxed_sys(&to->word, (uint64_t)c.number << 32 |
                                     (fine ? (uint32_t)rows : EPX_COMPLETION_DETAILS));
}

/* The outcome of an operation of one kernel, in its last block. */
static __device__ struct epx_outcome outcome_of_all(const struct epx_device_comm &c,
                                                    const struct epx_outcome &here, bool any_failed)
{
    return here.code == EPX_SUCCESS && any_failed ? outcome_of_abort(c) : here;
}

/* The last step of an operation of one kernel, by one thread of its last block. */
static __device__ void end_exchange(const struct epx_device_comm &c, const struct exchange &x,
                                    uint64_t rounds, uint64_t credit_rounds, int64_t rows,
                                    const struct epx_outcome &outcome)
{
    c.state->epoch = x.epoch;
    c.state->arrivals = x.arrivals + rounds * (uint64_t)c.blocks;
    c.state->credits = x.credits + credit_rounds * (uint64_t)c.blocks;
    complete(c, rows, outcome);
}

/* The same after hand_over; kernels without waits may have seen the abort word. */
static __device__ void end_operation(const struct epx_device_comm &c, int64_t rows)
{
    struct epx_outcome outcome = c.state->outcome;

    if (outcome.code == EPX_SUCCESS && aborted(c))
        outcome = outcome_of_abort(c);
    c.state->epoch++;
    c.state->arrivals += c.state->rounds * (uint64_t)c.blocks;
    c.state->credits += c.state->credit_rounds * (uint64_t)c.blocks;
    complete(c, rows, outcome);
}

/* The first kernel leaves to the next what it found out; one thread of one block. */
static __device__ void hand_over(const struct epx_device_comm &c, const struct exchange &x,
                                 uint64_t rounds, bool deferred, struct epx_outcome *routing)
{
    spoil_routing(c, x, routing);
    EPX_DELAY(c);
    c.state->rounds = rounds;
    c.state->credit_rounds = deferred || rounds == 0 ? 0 : rounds - 1;
    c.state->deferred = deferred;
    c.state->weighted = x.weighted;
    c.state->outcome = x.outcome;
}

/*
 * Whether this is the last block of its kernel to end; it sees what all others wrote, and whether
 * any of them was given up. x is NULL in kernels that wait for nothing.
 */
static __device__ bool is_last_block(const struct epx_device_comm &c, const struct exchange *x,
                                     bool &any_failed)
{
    __shared__ uint64_t ended;

    EPX_DELAY(c);
    __syncthreads();
    if (threadIdx.x == 0) {
        uint64_t failed = x && x->outcome.what == EPX_OUTCOME_SILENT;

        ended = fetch_add_acq_rel_gpu(&c.state->ended, failed << 32 | 1) + (failed << 32);
        if ((uint32_t)ended == gridDim.x - 1)
            c.state->ended = 0;
    }
    __syncthreads();
    any_failed = ended >> 32;
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
        x.weighted = c.state->weighted;
    }
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < c.num_ranks * EPX_READY_WORDS;
         i += (int32_t)blockDim.x)
        x.ready[i] = (uint32_t)load_relaxed_sys(
            epx_control_ready(c.own_control, c.num_ranks, (uint32_t)x.epoch, 0) + i);
    __syncthreads();
}

/* Every block of a kernel without waits; the last posts for as many blocks as wait. */
static __device__ void signal_arrival_of_all(const struct epx_device_comm &c, bool on)
{
    fence_sys(); /* of each thread's stores, before the block counts as ended */
    if (!is_last_block(c) || !on || aborted(c)) /* what a block has seen the last one sees too */
        return;
    EPX_DELAY(c);
    for (int32_t r = (int32_t)threadIdx.x; r < c.num_ranks; r += (int32_t)blockDim.x) {
        fence_sys();
        add_relaxed_sys(epx_control_arrived(c.control[r], c.rank), (uint64_t)c.blocks);
    }
}

/* Whether a later kernel has anything to do. */
static __device__ bool is_on(const struct epx_device_comm &c)
{
    EPX_DELAY(c);
    return __syncthreads_and(c.state->outcome.code == EPX_SUCCESS && !aborted(c));
}

/* Without waiting for what was there. */
static __device__ __forceinline__ void add_to(uint64_t *sum, uint64_t value)
{
    atomicAdd((unsigned long long *)sum, (unsigned long long)value);
}

/* Rows sent to each rank, for the statistics; one thread. */
template <typename Count>
static __device__ void count_rows(const struct epx_device_comm &c, const Count *rows,
                                  int64_t row_bytes)
{
    struct epx_device_stats *stats = &c.state->stats;
    uint64_t self = (uint64_t)rows[c.rank], all = 0, bytes = (uint64_t)row_bytes;

    for (int32_t r = 0; r < c.num_ranks; r++)
        all += (uint64_t)rows[r];
    add_to(&stats->rows_self, self);
    add_to(&stats->rows_node, all - self);
    add_to(&stats->bytes_self, self * bytes);
    add_to(&stats->bytes_node, (all - self) * bytes);
}

#endif

#endif
