/* SPDX-License-Identifier: BSD-3-Clause */
/* waits.cuh - bounded waits, and how they end for all ranks. protocol.cuh has the protocol. */
#ifndef EPX_KERNELS_PROTOCOL_WAITS_CUH
#define EPX_KERNELS_PROTOCOL_WAITS_CUH

#include "kernels/args/device_comm.h"
#include "kernels/control_words.h"
#include "kernels/protocol/kernel_jitter.cuh"
#include "kernels/warp/lanes.cuh"
#include "kernels/warp/ptx.cuh"

#ifdef __CUDACC__

/* What a block knows of the operation under way; in shared memory. */
struct exchange {
    uint64_t epoch, arrivals, credits; /* arrivals and credits before the operation */
    uint64_t barrier;                  /* at least the blocks that came to barriers before it */
    struct epx_outcome outcome;
    uint32_t findings; /* in the ready words; enum finding */
    uint32_t remarks;  /* not 0: the end of the operation looks for what seldom happens */
    uint32_t ready[EPX_MOST_DEVICE_RANKS * EPX_READY_WORDS];
};

/* What a thread finds in the ready words that it reads; the block collects them. */
enum finding { FOUND_GIVEN = 1, FOUND_NONE = 2, FOUND_DIFFERENCE = 4, FOUND_ERROR = 8 };

/* Whether some rank gives weights with its rows: after the verdict on the ready words. */
static __device__ __forceinline__ bool weights_come(const struct exchange &x)
{
    return x.findings & FOUND_GIVEN;
}

static __device__ __forceinline__ uint64_t *abort_word(const struct epx_device_comm &c,
                                                       int32_t rank)
{
    return (uint64_t *)(void *)c.control[rank];
}

/* The rank that is furthest behind, by operations begun, then by rounds. */
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

/* Ends the communicator on all ranks; the first rank to give up decides who is named as culprit. */
static __device__ EPX_COLD void give_up(const struct epx_device_comm &c, int32_t verb,
                                        int32_t culprit)
{
    uint64_t mine = (uint64_t)(uint32_t)verb << 32 | (uint32_t)(culprit + 1);
    uint64_t first =
        atomicCAS_system((unsigned long long *)abort_word(c, 0), 0ULL, (unsigned long long)mine);

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

/*
 * Who is waited for. A thread of the first block that waits notes now and then how long by now; so
 * a wait costs nothing when it ends, and a short one is not counted. Of the waits of an operation
 * for a rank the longest counts. Whoever is late posts its ready word late, for which the first
 * block of every operation waits.
 *
 *   waits.longest[r]  writers the threads that wait for r: the longest wait for it
 *   waits.last        writers all that wait: the longest wait for any rank, nanoseconds <<
 *                     WAIT_RANK_BITS | rank
 *   the tally         writer one warp, at the begin of a later operation, which takes what the
 *                     words above have; a wait of its own operation that it finds begun counts so
 *                     far, and as a whole later. In device memory, and a copy of it in pinned
 *                     memory, which the host reads.
 */
enum { WAIT_RANK_BITS = 8, LOOKS_A_COUNT = 32, LOOKS_A_CHECK = 128 };

static __device__ __forceinline__ void count_wait(const struct epx_device_comm &c, uint64_t ns,
                                                  int32_t rank)
{
    struct epx_device_waits *waits = &c.state->waits;

    atomicMax((unsigned long long *)&waits->longest[rank], (unsigned long long)ns);
    atomicMax((unsigned long long *)&waits->last,
              (unsigned long long)(ns << WAIT_RANK_BITS | (uint64_t)rank));
}

/* Adds to a word of the tally, and tells the host. */
static __device__ __forceinline__ void add_wait(uint64_t *sum, uint64_t *told, uint64_t value)
{
    *sum += value;
    store_relaxed_sys(told, *sum);
}

static __device__ __forceinline__ uint64_t take_wait(uint64_t *word)
{
    return atomicExch((unsigned long long *)word, 0ULL);
}

/* One warp: adds up the waits of an earlier operation, a lane those for each rank. */
static __device__ EPX_COLD void tally_waits(const struct epx_device_comm &c)
{
    struct epx_device_waits *waits = &c.state->waits;

    if (lane_id() == 0) {
        int32_t rank = (int32_t)(take_wait(&waits->last) & ((1u << WAIT_RANK_BITS) - 1));

        add_wait(&waits->tally.operations[rank], &c.waits->operations[rank], 1);
    }
    for (int32_t r = lane_id(); r < c.num_ranks; r += EPX_WARP) {
        uint64_t ns = take_wait(&waits->longest[r]);

        if (ns)
            add_wait(&waits->tally.ns[r], &c.waits->ns[r], ns);
    }
}

/* The clock of one wait, by which it goes on or ends. */
struct patience {
    uint64_t start_ns;
    uint32_t spins;
};

/* Called now and then. Returns when the wait began, 0 if time or another rank has ended it. */
static __device__ EPX_COLD uint64_t check_patience(const struct epx_device_comm &c,
                                                   uint64_t start_ns, int32_t waiting_for)
{
    const uint64_t now = global_timer_ns();

    start_ns = start_ns ? start_ns : now;
    if (blockIdx.x == 0 && now > start_ns && waiting_for != c.rank && c.waits)
        count_wait(c, now - start_ns, waiting_for);
    if (aborted(c))
        return 0;
    if (!c.timeout_ns || now - start_ns < c.timeout_ns)
        return start_ns;
    give_up(c, c.verb, find_culprit(c, waiting_for));
    return 0;
}

static __device__ __forceinline__ bool keep_waiting(const struct epx_device_comm &c,
                                                    struct patience &p, int32_t waiting_for)
{
    if (++p.spins % (p.spins < LOOKS_A_CHECK ? LOOKS_A_COUNT : LOOKS_A_CHECK))
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

/* The whole warp, after each lane has had its words: returns whether all lanes had. Then what the
 * words tell of can be read. */
static __device__ __forceinline__ bool acquire_words(const struct epx_device_comm &c, bool ok)
{
    fence_acquire_sys();
    EPX_DELAY(c);
    ok = __all_sync(~0u, ok);
    __syncwarp();
    return ok;
}

/* Waits for a word that carries the number of its operation. */
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

/* Waits for a word that carries the number of this operation where the one before it may be of any
 * other. */
static __device__ bool await_word(const struct epx_device_comm &c, const uint64_t *word,
                                  uint64_t epoch, int32_t waiting_for, uint32_t *payload)
{
    struct patience patience = {0, 0};
    uint64_t value;

    while ((uint32_t)((value = load_relaxed_sys(word)) >> 32) != (uint32_t)epoch)
        if (!keep_waiting(c, patience, waiting_for))
            return false;
    *payload = (uint32_t)value;
    return true;
}

static __device__ __forceinline__ uint64_t tagged(uint64_t epoch, uint32_t payload)
{
    return epoch << 32 | payload;
}

static __device__ EPX_COLD void note_abort(const struct epx_device_comm &c, struct exchange &x)
{
    if (threadIdx.x == 0 && x.outcome.code == EPX_SUCCESS)
        x.outcome = outcome_of_abort(c);
    __syncthreads();
}

/* The whole block: whether every thread is content; if not the operation has been given up. */
static __device__ __forceinline__ bool all_content(const struct epx_device_comm &c,
                                                   struct exchange &x, bool ok)
{
    if (__syncthreads_and(ok))
        return true;
    note_abort(c, x);
    return false;
}

#endif

#endif
