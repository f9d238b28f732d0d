/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_ids.cuh - a routing of few pairs: every rank tells all others its expert ids, and each
 * block of each rank works out from all ids, in shared memory, whatever it needs. So blocks need
 * nothing of each other, and the ids are the only thing that travels. Pairs are counted as their
 * ids come.
 *
 *   words   in every rank's bank (banks.cuh), [source]: how many tokens, the receive capacity,
 *           then max_tokens * K ids, -1 = none. Each carries the number of its operation, so it
 *           needs no fence; only routings write there. They are awaited beside the ready words: a
 *           rank that is in no routing sends none, but its ready words differ from this rank's, and
 *           a thread that waits for an id looks whether that was found
 */
#ifndef EPX_KERNELS_ROUTING_SMALL_IDS_CUH
#define EPX_KERNELS_ROUTING_SMALL_IDS_CUH

#include "kernels/protocol/banks.cuh"
#include "kernels/routing/routing_steps.cuh"
#include "kernels/small_parts.h"

enum { ID_HEAD = 2 };

/* What all blocks know of all pairs; in shared memory, as is what it points to. */
struct small_routing {
    struct offsets o;
    struct rank_table table;
    uint8_t *owner; /* as the table has it once it is filled in */
    int32_t *matrix, *counters;
    uint64_t *mask;
    int16_t *ids;
    uint16_t *index, *rows;
    int32_t stride; /* ids of a source */
    int32_t chunks; /* of a source */
    int32_t shift;  /* of a chunk */
    int32_t bits;   /* of its number */
};

/* One thread: where the parts lie. */
static __device__ void divide_small(const struct epx_route_tokens &a, char *part,
                                    const struct epx_small_parts &parts, struct small_routing &s)
{
    s.o.base = (int64_t *)(void *)part;
    s.o.from = (int64_t *)(void *)(part += parts.base);
    s.owner = (uint8_t *)(part += parts.from);
    s.mask = (uint64_t *)(void *)(part += parts.owners);
    s.o.matrix = s.matrix = (int32_t *)(void *)(part += parts.mask);
    s.counters = (int32_t *)(void *)(part += parts.matrix);
    s.ids = (int16_t *)(void *)(part += parts.counters);
    s.index = (uint16_t *)(void *)(part += parts.ids);
    s.rows = (uint16_t *)(void *)(part + parts.index);
    s.stride = epx_ids_stride(&a.plan.shape);
    s.chunks = parts.chunks;
    s.shift = parts.shift;
    s.bits = parts.bits;
}

/* The whole block, first of all: shared memory, and which rank has each expert. The next barrier
 * shows it to all threads. */
static __device__ void prepare_small(const struct epx_route_tokens &a, char *shared,
                                     const struct epx_small_parts &parts, struct small_routing &s)
{
    if (threadIdx.x == blockDim.x - 1)
        divide_small(a, shared, parts, s);
    look_up(a, (uint8_t *)shared + parts.base + parts.from, s.table);
}

/* The whole block: masks, matrix and counters, which lie together, at zero. The next barrier shows
 * it to all threads. */
static __device__ void clear_small(const struct epx_route_tokens &a,
                                   const struct epx_small_parts &parts, struct small_routing &s)
{
    int4 *words = (int4 *)(void *)s.mask;

#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x; i < (parts.mask + parts.matrix + parts.counters) / 16;
         i += (int32_t)blockDim.x)
        words[i] = make_int4(0, 0, 0, 0);
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x)
        s.o.required[r] = 0;
}

static __device__ __forceinline__ uint32_t words_of_source(const struct epx_route_tokens &a)
{
    return (uint32_t)(ID_HEAD + a.plan.shape.max_tokens * a.plan.shape.top_k);
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
    uint32_t payload;
    int32_t bad_pair; /* -1 = none */
};

static __device__ __forceinline__ uint32_t num_told(const struct epx_route_tokens &a)
{
    return words_of_source(a) * (uint32_t)a.comm.num_ranks;
}

/* The i-th word that this rank tells; place NULL = there is none. */
static __device__ struct told_word word_to_tell(const struct epx_route_tokens &a, uint32_t i)
{
    const uint32_t words = words_of_source(a), at = (uint32_t)a.comm.rank * words + i % words;
    const int32_t rank = (int32_t)(i / words), word = (int32_t)(i % words);
    struct told_word told = {{NULL, NULL}, 0, -1};
    bool is_bad = false;

    if (i >= num_told(a))
        return told;
    for (uint32_t n = 0; n < 2; n++)
        told.place[n] = words_of_ids(bank_on(a.comm, a.banks, n, rank)) + at;
    told.payload = (uint32_t)(word == 0   ? a.num_tokens
                              : word == 1 ? a.capacity
                                          : told_id(a, word - ID_HEAD, is_bad));
    if (is_bad && rank == a.comm.rank)
        told.bad_pair = word - ID_HEAD;
    return told;
}

/* Which word a thread of the first `blocks` blocks, which tell, tells first. Those of the first
 * block, whose last threads post the ready words, come last. */
static __device__ __forceinline__ uint32_t first_told(uint32_t blocks)
{
    return (blocks - 1 - blockIdx.x) * blockDim.x + threadIdx.x;
}

/* The thread's first word, looked up before the operation has its number. */
static __device__ __forceinline__ struct told_word prepare_ids(const struct epx_route_tokens &a,
                                                               uint32_t blocks)
{
    return word_to_tell(a, blockIdx.x < blocks ? first_told(blocks) : UINT32_MAX);
}

/* The first blocks tell all ranks, this one too; `told` is from prepare_ids. */
static __device__ void send_ids(const struct epx_route_tokens &a, struct exchange &x,
                                uint32_t blocks, struct told_word told)
{
    const uint32_t threads = blocks * blockDim.x;

#pragma unroll 1
    for (uint32_t i = first_told(blocks); told.place[0]; told = word_to_tell(a, i += threads)) {
        EPX_DELAY(a.comm);
        store_relaxed_sys(told.place[x.epoch & 1], tagged(x.epoch, told.payload));
        if (told.bad_pair < 0)
            continue;
        note_bad(a.plan, told.bad_pair);
        x.remarks = 1;
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

/* Counts a pair of a source: for its expert in its chunk, and the token for the expert's rank. */
static __device__ void count_id(const struct epx_route_tokens &a, const struct small_routing &s,
                                int32_t source, int32_t pair, int32_t id)
{
    const int32_t experts = a.plan.shape.num_experts, rank = s.owner[id];
    const int32_t token = source * a.plan.shape.max_tokens + pair / a.plan.shape.top_k;
    const uint32_t bit = 1u << rank % 32;
    uint32_t *half = (uint32_t *)(void *)&s.mask[token] + rank / 32;

    atomicAdd(&s.counters[(source * s.chunks + (pair >> s.shift)) * experts + id], 1);
    if (!(atomicOr(half, bit) & bit))
        atomicAdd(&s.matrix[source * num_counts(a) + experts + rank], 1);
}

static __device__ void take_word(const struct epx_route_tokens &a, struct small_routing &s,
                                 int32_t source, int32_t word, int32_t payload)
{
    const int32_t pair = word - ID_HEAD;

    if (word == 1)
        s.o.capacity[source] = payload;
    if (pair < 0)
        return;
    s.ids[source * s.stride + pair] = (int16_t)payload;
    if (payload >= 0)
        count_id(a, s, source, pair, payload);
}

/*
 * The whole block, after a barrier behind clear_small: waits for the ready words and the ids of all
 * ranks. Returns whether the operation goes on: the ids are in shared memory then, and counted.
 */
static __device__ bool receive_ids(const struct epx_route_tokens &a, struct exchange &x,
                                   struct small_routing &s)
{
    const uint32_t words = words_of_source(a), all = num_told(a);
    const uint64_t *from = words_here(a, x.epoch);
    uint32_t i = first_awaited();
    /* on its way while the thread waits for ready words */
    uint64_t value = i < all ? load_relaxed_sys(from + i) : 0;
    bool ok = collect_ready(a.comm, a.note, x);

#pragma unroll 1
    while (ok && i < all) {
        const int32_t source = (int32_t)(i / words), word = (int32_t)(i % words);

        ok = await_id(a, x, from + i, source, value);
        if (ok)
            take_word(a, s, source, word, (int32_t)(uint32_t)value);
        i += blockDim.x;
        if (i < all)
            value = load_relaxed_sys(from + i);
    }
    return all_content(a.comm, x, ok) && judge_ready(a.comm, x, NULL);
}

#endif
