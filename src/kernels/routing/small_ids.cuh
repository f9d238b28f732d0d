/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_ids.cuh - a routing of few pairs: every rank tells all others its expert ids, and each
 * block of each rank works out from all ids, in shared memory, whatever it needs. So blocks need
 * nothing of each other, and the ids are the only thing that travels. Pairs are counted as their
 * ids come.
 *
 *   words   in every rank's bank (banks.cuh), [source]: the receive capacity, then max_tokens * K
 *           ids, two in a word, -1 = none. Each carries the number of its operation, so it needs no
 *           fence; only routings write there, and combines weights (few_sums.cuh). They are awaited
 *           beside the ready words: a rank that is in no routing sends none, but its ready words
 *           differ from this rank's, and a thread that waits for an id looks whether that was found
 */
#ifndef EPX_KERNELS_ROUTING_SMALL_IDS_CUH
#define EPX_KERNELS_ROUTING_SMALL_IDS_CUH

#include "kernels/routing/routing_steps.cuh"
#include "kernels/routing/small_numbers.cuh"
#include "kernels/small_parts.h"
#include "kernels/wires/banks.cuh"

enum { ID_HEAD = 1 };

/* One thread: where the parts lie. */
static __device__ void divide_small(const struct epx_route_tokens &a, char *shared,
                                    const struct epx_small_parts &parts, struct small_routing &s)
{
    char *part = shared;

    s.o.base = (int64_t *)(void *)part;
    s.o.from = (int64_t *)(void *)(part += parts.base);
    s.owner = (uint8_t *)(part += parts.from);
    s.mask = (uint64_t *)(void *)(part += parts.owners);
    part = shared + epx_small_matrix_at(&parts);
    s.o.matrix = s.matrix = (int32_t *)(void *)part;
    s.bits = (uint32_t *)(void *)(part += parts.matrix);
    s.ids = (int16_t *)(void *)(part + parts.bits);
    s.stride = epx_ids_stride(&a.plan.shape);
    s.words = parts.words;
}

/* The whole block: the matrix and the bits, which lie together, at zero. */
static __device__ void clear_small(const struct epx_route_tokens &a, char *shared,
                                   const struct epx_small_parts &parts, struct small_routing &s)
{
    int4 *words = (int4 *)(void *)(shared + epx_small_matrix_at(&parts));

#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x; i < (parts.matrix + parts.bits) / 16;
         i += (int32_t)blockDim.x)
        words[i] = make_int4(0, 0, 0, 0);
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x)
        s.o.required[r] = s.fullest[r] = 0;
    if (threadIdx.x < TWICE_WORDS)
        s.twice[threadIdx.x] = 0;
}

/* The whole block: shared memory, and which rank has each expert. It reads only tables that are
 * written when the communicator and the route are made, so it may come before await_kernel_before.
 * The next barrier shows it to all threads. */
static __device__ void prepare_small(const struct epx_route_tokens &a, char *shared,
                                     const struct epx_small_parts &parts, struct small_routing &s)
{
    if (threadIdx.x == blockDim.x - 1)
        divide_small(a, shared, parts, s);
    look_up(a, (uint8_t *)shared + parts.base + parts.from, s.table);
    clear_small(a, shared, parts, s);
}

static __device__ __forceinline__ uint32_t words_of_source(const struct epx_route_tokens &a)
{
    return (uint32_t)(ID_HEAD +
                      (a.plan.shape.max_tokens * a.plan.shape.top_k + 1) / EPX_IDS_IN_WORD);
}

/* This rank's id of a pair as all ranks are told it, -1 if it is bad. */
static __device__ int32_t told_id(const struct epx_route_tokens &a, int32_t pair, bool &is_bad)
{
    int64_t id;

    is_bad = false;
    if (pair >= a.num_tokens * a.plan.shape.top_k)
        return -1;
    id = epx_expert_id(a.ids, a.plan.shape.index_bits, pair);
    if (id >= 0 && id < a.plan.shape.num_experts)
        return (int32_t)id;
    is_bad = id != -1;
    return -1;
}

/* A word that this rank tells another: what it is, and its place in the banks of even and of odd
 * operations there. */
struct told_word {
    uint64_t *place[2];
    int32_t pair; /* the first of those in it; negative: it is the capacity */
    bool is_here; /* goes to this rank itself, which notes bad ids then */
    uint32_t payload;
    uint32_t bad; /* a bit for each pair that this rank notes as bad */
};

static __device__ __forceinline__ uint32_t num_told(const struct epx_route_tokens &a)
{
    return words_of_source(a) * (uint32_t)a.comm.num_ranks;
}

/* Where the i-th word goes that this rank tells; place NULL = there is none. */
static __device__ struct told_word place_of_told(const struct epx_route_tokens &a, uint32_t i)
{
    const uint32_t words = words_of_source(a), at = (uint32_t)a.comm.rank * words + i % words;
    const int32_t rank = (int32_t)(i / words), word = (int32_t)(i % words);
    struct told_word told = {
        {NULL, NULL}, (word - ID_HEAD) * EPX_IDS_IN_WORD, rank == a.comm.rank, 0, 0};

    if (rank >= a.comm.num_ranks)
        return told;
    for (uint32_t n = 0; n < 2; n++)
        told.place[n] = words_of_ids(bank_on(a.comm, a.banks, n, rank)) + at;
    return told;
}

/* What a word tells: the ids of two pairs as all ranks are told them, or the capacity. */
static __device__ __forceinline__ void read_told(const struct epx_route_tokens &a,
                                                 struct told_word &told)
{
    bool first_bad, second_bad;
    uint32_t first, second;

    if (!told.place[0])
        return;
    told.payload = (uint32_t)a.capacity;
    if (told.pair < 0)
        return;
    first = (uint32_t)told_id(a, told.pair, first_bad);
    second = (uint32_t)told_id(a, told.pair + 1, second_bad);
    told.payload = second << 16 | (first & 0xffff);
    if (told.is_here)
        told.bad = (uint32_t)first_bad | (uint32_t)second_bad << 1;
}

/* Which word a thread of the first `blocks` blocks, which tell, tells first. Those of the first
 * block, whose last threads post the ready words, come last. */
static __device__ __forceinline__ uint32_t first_told(uint32_t blocks)
{
    return (blocks - 1 - blockIdx.x) * blockDim.x + threadIdx.x;
}

/* Where the thread's first word goes; it may come before await_kernel_before, as prepare_small. */
static __device__ __forceinline__ struct told_word prepare_ids(const struct epx_route_tokens &a,
                                                               uint32_t blocks)
{
    if (blockIdx.x < blocks)
        return place_of_told(a, first_told(blocks));
    return {{NULL, NULL}, 0, false, 0, 0};
}

/* The first blocks tell all ranks, this one too; `told` is from prepare_ids and read_told: its ids
 * were read before the operation had its number. */
static __device__ void send_ids(const struct epx_route_tokens &a, struct exchange &x,
                                uint32_t blocks, struct told_word told)
{
    const uint32_t threads = blocks * blockDim.x;

#pragma unroll 1
    for (uint32_t i = first_told(blocks); told.place[0];) {
        EPX_DELAY(a.comm);
        store_relaxed_sys(told.place[x.epoch & 1], tagged(x.epoch, told.payload));
        if (told.bad)
            atomicOr(&x.remarks, 1u);
        for (int32_t pair = told.pair; told.bad; pair++, told.bad >>= 1)
            if (told.bad & 1)
                note_bad(a.plan, pair);
        told = place_of_told(a, i += threads);
        read_told(a, told);
    }
}

/* The last threads wait for ready words before. */
static __device__ __forceinline__ uint32_t first_awaited()
{
    return threadIdx.x;
}

static __device__ __forceinline__ const uint64_t *words_here(const struct epx_route_tokens &a,
                                                             uint64_t epoch)
{
    return words_of_ids(bank_on(a.comm, a.banks, epoch, a.comm.rank));
}

/* Waits for a word unless `value`, which was loaded before, is it; it never comes from a rank that
 * was found to differ, and then its payload means nothing. */
static __device__ bool await_id(const struct epx_route_tokens &a, const struct exchange &x,
                                const uint64_t *word, int32_t source, uint64_t &value)
{
    struct patience patience = {0, 0};

    while ((int32_t)((uint32_t)(value >> 32) - (uint32_t)x.epoch) < 0) {
        if (*(const volatile uint32_t *)&x.findings & FOUND_DIFFERENCE) {
            value = (uint32_t)-1;
            return true;
        }
        if (!keep_waiting(a.comm, patience, source))
            return false;
        value = load_relaxed_sys(word);
    }
    return true;
}

/* Takes what a source has told in a word. Of a rank that routes on another route it may be
 * anything, until that is found. */
static __device__ void take_told_word(const struct epx_route_tokens &a, struct small_routing &s,
                                      int32_t source, int32_t word, uint32_t payload)
{
    const int32_t pair = (word - ID_HEAD) * EPX_IDS_IN_WORD;

    if (word < ID_HEAD) {
        s.o.capacity[source] = (int32_t)payload;
        return;
    }
    *(uint32_t *)(void *)&s.ids[source * s.stride + pair] = payload;
#pragma unroll
    for (int32_t i = 0; i < EPX_IDS_IN_WORD; i++, payload >>= 16)
        if ((payload & 0xffff) < (uint32_t)a.plan.shape.num_experts)
            count_small_pair(a, s, source, (pair + i) / a.plan.shape.top_k, (int16_t)payload);
}

/*
 * The whole block, after a barrier behind prepare_small: waits for the ready words and the ids of
 * all ranks. Returns whether the operation goes on: the ids are in shared memory then, and counted.
 */
static __device__ bool receive_ids(const struct epx_route_tokens &a, struct exchange &x,
                                   struct small_routing &s)
{
    const uint32_t words = words_of_source(a), all = num_told(a);
    const uint64_t *from = words_here(a, x.epoch);
    uint32_t i = first_awaited();
    /* on its way while the thread waits for ready words, as the next one beside each word */
    uint64_t value = i < all ? load_relaxed_sys(from + i) : 0;
    bool ok = collect_ready(a.comm, a.note, x);

#pragma unroll 1
    while (ok && i < all) {
        const int32_t source = (int32_t)(i / words), word = (int32_t)(i % words);
        uint64_t next = i + blockDim.x < all ? load_relaxed_sys(from + i + blockDim.x) : 0;

        ok = await_id(a, x, from + i, source, value);
        if (ok)
            take_told_word(a, s, source, word, (uint32_t)value);
        i += blockDim.x;
        value = next;
    }
    return all_content(a.comm, x, ok) && judge_ready(a.comm, x, NULL);
}

#endif
