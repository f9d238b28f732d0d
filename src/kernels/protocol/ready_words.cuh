/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ready_words.cuh - how an operation begins: what every rank tells all about it, and the verdict on
 * that. protocol.cuh has the protocol.
 */
#ifndef EPX_KERNELS_PROTOCOL_READY_WORDS_CUH
#define EPX_KERNELS_PROTOCOL_READY_WORDS_CUH

#include "kernels/args/ready_note.h"
#include "kernels/protocol/waits.cuh"

#ifdef __CUDACC__

/* The ready word that a thread sends or waits for first: that of the block's last thread is word 0,
 * as work is dealt out from the first warps on. */
static __device__ __forceinline__ int32_t first_ready_word()
{
    return (int32_t)(blockDim.x - 1 - threadIdx.x);
}

/* Where a ready word goes; looked up before its value is known. */
static __device__ __forceinline__ char *control_of_word(const struct epx_device_comm &c, int32_t i)
{
    return i < c.num_ranks * EPX_READY_WORDS ? c.control[i / EPX_READY_WORDS] : NULL;
}

static __device__ void post_ready(const struct epx_device_comm &c,
                                  const struct epx_ready_note &note, int32_t routing_error,
                                  const struct exchange &x, char *control)
{
    for (int32_t i = first_ready_word(); i < c.num_ranks * EPX_READY_WORDS;
         i += (int32_t)blockDim.x, control = control_of_word(c, i)) {
        int32_t word = i % EPX_READY_WORDS;
        uint64_t *to = epx_control_ready(control, c.num_ranks, (uint32_t)x.epoch, c.rank);
        uint32_t payload = word == EPX_READY_ERROR ? (uint32_t)routing_error : note.word[word];

        EPX_DELAY(c);
        store_relaxed_sys(to + word, tagged(x.epoch, payload));
    }
}

/* What a kernel that begins an operation asks for first, so that it comes beside what else the
 * kernel looks up; thread 0 has the numbers. */
struct first_look {
    bool dead; /* the communicator has ended */
    uint64_t epoch, arrivals, credits, barrier, waits;
};

static __device__ __forceinline__ struct first_look look_first(const struct epx_device_comm &c)
{
    struct first_look look = {aborted(c), 0, 0, 0, 0, 0};

    if (threadIdx.x == 0) {
        look.epoch = c.state->epoch;
        look.arrivals = c.state->arrivals;
        look.credits = c.state->credits;
        look.barrier = c.state->barrier;
        look.waits = c.state->waits.last;
    }
    return look;
}

/* First step of every kernel that begins an operation, given what it looked up; the first block
 * tells the other ranks, unless an earlier kernel has. */
static __device__ void begin_exchange(const struct epx_device_comm &c,
                                      const struct epx_ready_note &note, int32_t routing_error,
                                      const struct first_look &look, struct exchange &x,
                                      bool told = false)
{
    const bool tells = blockIdx.x == 0 && !told;
    char *control = tells ? control_of_word(c, first_ready_word()) : NULL;

    if (threadIdx.x == 0) {
        x.epoch = look.epoch + 1;
        x.arrivals = look.arrivals;
        x.credits = look.credits;
        x.barrier = look.barrier;
        x.outcome = epx_outcome();
        x.findings = x.remarks = 0;
    }
    EPX_DELAY(c);
    if (!all_content(c, x, !look.dead) || !tells)
        return;
    post_ready(c, note, routing_error, x, control);
    if (threadIdx.x < EPX_WARP && __shfl_sync(~0u, look.waits, 0))
        tally_waits(c);
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

/* Values of EPX_READY_WEIGHTS, as in coll/ready.h; of EPX_READY_VERB, as in request.h. */
enum { WEIGHTS_NONE, WEIGHTS_GIVEN, WEIGHTS_EITHER };
enum { ROUTE_TOKENS = 0, ROUTE_DISPATCH = 1, ROUTE_DISPATCH_FIELDS = 2, DISPATCH_FIELDS = 4 };

/* What a rank told in a word that differs, as the outcome has it. */
static __device__ int64_t told_in(const struct exchange &x, int32_t rank, int32_t word)
{
    if (word == EPX_READY_ROW_LOW)
        return ready_long(x, rank, word);
    if (word >= EPX_READY_FIELDS)
        return (int64_t)ready_word(x, rank, word) - 1;
    return (int32_t)ready_word(x, rank, word);
}

/* Which word differs, as the outcome has it. All ranks up to the one that differs are in the same
 * operation as rank 0. */
static __device__ int64_t name_of(const struct exchange &x, int32_t word)
{
    uint32_t verb = ready_word(x, 0, EPX_READY_VERB);
    bool list = verb == ROUTE_DISPATCH_FIELDS || verb == DISPATCH_FIELDS;

    if (word >= EPX_READY_FIELDS)
        return EPX_DIFFERS_FIELD + 1 + word - EPX_READY_FIELDS;
    return list && word == EPX_READY_ROW_LOW ? EPX_DIFFERS_FIELD : word;
}

/* Finds the first rank that differs from rank 0, and the first word in which it does. */
static __device__ EPX_COLD void find_difference(const struct epx_device_comm &c, struct exchange &x)
{
    for (int32_t i = 0; i < c.num_ranks * EPX_READY_WORDS; i++) {
        int32_t rank = i / EPX_READY_WORDS, word = i % EPX_READY_WORDS;
        int32_t low = word == EPX_READY_ROW_HIGH ? EPX_READY_ROW_LOW : word;

        if (!epx_ready_compared(word) || ready_word(x, rank, word) == ready_word(x, 0, word))
            continue;
        x.outcome.code = EPX_ERR_ARG;
        x.outcome.what = EPX_OUTCOME_DIFFERS;
        x.outcome.rank = rank;
        x.outcome.a = name_of(x, low);
        x.outcome.b = told_in(x, 0, low);
        x.outcome.c = told_in(x, rank, low);
        return;
    }
}

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

/* Compares with this rank's words alone: if any two ranks differ, one of them differs from this. */
static __device__ uint32_t findings_of(const struct epx_ready_note &note, int32_t word,
                                       uint32_t payload)
{
    if (epx_ready_compared(word))
        return payload != note.word[word] ? FOUND_DIFFERENCE : 0;
    if (word == EPX_READY_WEIGHTS)
        return payload == WEIGHTS_GIVEN ? FOUND_GIVEN : payload == WEIGHTS_NONE ? FOUND_NONE : 0;
    return word == EPX_READY_ERROR && payload != EPX_SUCCESS ? FOUND_ERROR : 0;
}

/* The whole block, which has found that the ranks do not agree: finds out why. */
static __device__ EPX_COLD void explain_verdict(const struct epx_device_comm &c, struct exchange &x,
                                                const struct epx_outcome *routing)
{
    const uint32_t both = FOUND_GIVEN | FOUND_NONE;

    if (threadIdx.x == 0) {
        if (x.findings & FOUND_DIFFERENCE)
            find_difference(c, x);
        else if ((x.findings & both) == both)
            find_weights(c, x);
        else
            find_routing_error(c, x, routing);
    }
    __syncthreads();
}

/* The whole block, behind a barrier: the verdict on everybody's words. All ranks come to the same
 * verdict. */
static __device__ __forceinline__ bool
judge_ready(const struct epx_device_comm &c, struct exchange &x, const struct epx_outcome *routing)
{
    const uint32_t both = FOUND_GIVEN | FOUND_NONE, found = x.findings;

    if (!(found & (FOUND_DIFFERENCE | FOUND_ERROR)) && (found & both) != both)
        return true;
    explain_verdict(c, x, routing);
    return false;
}

static __device__ __forceinline__ bool is_routing(const struct exchange &x, int32_t rank)
{
    uint32_t verb = ready_word(x, rank, EPX_READY_VERB);

    return verb == ROUTE_TOKENS || verb == ROUTE_DISPATCH || verb == ROUTE_DISPATCH_FIELDS;
}

/* After a disagreement every routing that some rank was calling is void. Sets this rank's outcome
 * of it if its operation is on the same route. */
static __device__ EPX_COLD void spoil_routing(const struct epx_device_comm &c,
                                              const struct exchange &x, struct epx_outcome *routing)
{
    if (x.outcome.what != EPX_OUTCOME_DIFFERS && x.outcome.what != EPX_OUTCOME_WEIGHTS)
        return;
    for (int32_t r = 0; r < c.num_ranks; r++)
        if (is_routing(x, r) &&
            ready_word(x, r, EPX_READY_ROUTE) == ready_word(x, c.rank, EPX_READY_ROUTE))
            *routing = x.outcome;
}

/* Each thread of a block that has ready words to wait for: waits for them and compares them.
 * Returns whether they have come; the verdict is judge_ready's, behind a barrier. */
static __device__ bool collect_ready(const struct epx_device_comm &c,
                                     const struct epx_ready_note &note, struct exchange &x)
{
    const uint64_t *own = epx_control_ready(c.own_control, c.num_ranks, (uint32_t)x.epoch, 0);
    bool ok = x.outcome.code == EPX_SUCCESS;

    EPX_DELAY(c);
    for (int32_t i = first_ready_word(); ok && i < c.num_ranks * EPX_READY_WORDS;
         i += (int32_t)blockDim.x) {
        uint32_t payload = 0, found;

        ok = await_tagged(c, own + i, (uint32_t)x.epoch, i / EPX_READY_WORDS, &payload);
        found = findings_of(note, i % EPX_READY_WORDS, payload);
        x.ready[i] = payload;
        if (ok && found)
            atomicOr(&x.findings, found);
    }
    return ok;
}

/*
 * All blocks, before the first store into another rank's memory: waits for the ready words of
 * all ranks and compares them. routing is NULL for operations that stand on none; content tells
 * whether what else this thread waited for has come.
 */
static __device__ bool await_ready(const struct epx_device_comm &c,
                                   const struct epx_ready_note &note, struct exchange &x,
                                   const struct epx_outcome *routing, bool content = true)
{
    bool ok = content && collect_ready(c, note, x);

    ok = all_content(c, x, ok) && judge_ready(c, x, routing);
    EPX_DELAY(c);
    return ok;
}

/*
 * await_ready, called by each warp of a block when it needs the verdict, but by all of them: a warp
 * can prepare its work beside the wait. Before that it reads nothing that other ranks have stored
 * in this operation, and writes nothing of the user's. Warps come to the barrier from different
 * places in the code, which PTX allows: it knows a barrier by its number. The tool synccheck of
 * compute-sanitizer reports it all the same.
 */
struct verdict {
    const struct epx_device_comm &c;
    const struct epx_ready_note &note;
    struct exchange &x;
    const struct epx_outcome *routing;
    bool known, agreed;

    /* The words that this thread waits for, apart from the code that most warps go through. */
    __device__ EPX_COLD bool collect()
    {
        return collect_ready(c, note, x);
    }

    __device__ __forceinline__ bool operator()()
    {
        if (!known) {
            const bool has_words = first_ready_word() < c.num_ranks * EPX_READY_WORDS;

            agreed = all_content(c, x, !has_words || collect()) && judge_ready(c, x, routing);
            EPX_DELAY(c);
        }
        known = true;
        return agreed;
    }
};

#endif

#endif
