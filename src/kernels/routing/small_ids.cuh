/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_ids.cuh - a routing of few pairs: every rank tells all others its expert ids, and each
 * block of each rank works out from all ids, in shared memory, whatever it needs. So blocks need
 * nothing of each other, and the ids are the only thing that travels.
 *
 *   words   in every rank's bank (banks.cuh), [source]: how many tokens, the receive capacity,
 *           then max_tokens * K ids, -1 = none. Each carries the number of its operation, so it
 *           needs no fence; only routings write there.
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
};

/* One thread: where the parts lie. */
static __device__ void divide_small(const struct epx_route_tokens &a, char *part,
                                    const struct epx_small_parts &parts, struct small_routing &s)
{
    s.o.base = (int64_t *)(void *)part;
    s.o.from = (int64_t *)(void *)(part += parts.base);
    s.mask = (uint64_t *)(void *)(part += parts.from);
    s.owner = (uint8_t *)(part += parts.mask);
    s.o.matrix = s.matrix = (int32_t *)(void *)(part += parts.owners);
    s.counters = (int32_t *)(void *)(part += parts.matrix);
    s.ids = (int16_t *)(void *)(part += parts.counters);
    s.index = (uint16_t *)(void *)(part += parts.ids);
    s.rows = (uint16_t *)(void *)(part + parts.index);
    s.stride = epx_ids_stride(&a.plan.shape);
    s.chunks = parts.chunks;
}

/* The whole block: counters at zero. */
static __device__ void clear_small(const struct epx_small_parts &parts,
                                   const struct small_routing &s)
{
    for (int32_t i = (int32_t)threadIdx.x; i < (parts.matrix + parts.counters) / 4;
         i += (int32_t)blockDim.x)
        s.matrix[i] = 0;
}

static __device__ __forceinline__ int32_t words_of_source(const struct epx_route_tokens &a)
{
    return ID_HEAD + a.plan.shape.max_tokens * a.plan.shape.top_k;
}

/* This rank's id of a pair as all ranks are told it. */
static __device__ int32_t told_id(const struct epx_route_tokens &a, int32_t pair, bool notes)
{
    int64_t id;

    if (pair >= a.num_tokens * a.plan.shape.top_k)
        return -1;
    id = epx_expert_id(a.ids, a.plan.shape.index_bits, pair);
    if (id >= 0 && id < a.plan.shape.num_experts)
        return (int32_t)id;
    if (id != -1 && notes)
        note_bad(a.plan, pair);
    return -1;
}

/* All blocks: tell all ranks, this one too. */
static __device__ void send_ids(const struct epx_route_tokens &a, uint64_t epoch)
{
    const uint32_t words = (uint32_t)words_of_source(a), all = words * (uint32_t)a.comm.num_ranks;

    for (uint32_t i = (uint32_t)routing_thread(a); i < all; i += (uint32_t)num_routing_threads(a)) {
        int32_t rank = (int32_t)(i / words), word = (int32_t)(i % words);
        int32_t payload = word == 0   ? a.num_tokens
                          : word == 1 ? a.capacity
                                      : told_id(a, word - ID_HEAD, rank == a.comm.rank);
        uint64_t *to = words_of_ids(bank_on(a.comm, a.banks, epoch, rank));

        EPX_DELAY(a.comm);
        store_relaxed_sys(to + (uint32_t)a.comm.rank * words + (uint32_t)word,
                          tagged(epoch, (uint32_t)payload));
    }
}

/* The thread's first word, asked for before the ranks agree, so that it is here when they do. */
static __device__ __forceinline__ uint64_t first_word(const struct epx_route_tokens &a,
                                                      uint64_t epoch)
{
    const uint32_t all = (uint32_t)words_of_source(a) * (uint32_t)a.comm.num_ranks;

    return threadIdx.x < all
               ? load_relaxed_sys(words_of_ids(bank_on(a.comm, a.banks, epoch, a.comm.rank)) +
                                  threadIdx.x)
               : 0;
}

/* The whole block: has all ids in shared memory. False if the operation was given up. */
static __device__ bool receive_ids(const struct epx_route_tokens &a, struct exchange &x,
                                   uint64_t first, struct small_routing &s)
{
    const uint32_t words = (uint32_t)words_of_source(a), all = words * (uint32_t)a.comm.num_ranks;
    const uint64_t *from = words_of_ids(bank_on(a.comm, a.banks, x.epoch, a.comm.rank));
    bool ok = true;

    for (uint32_t i = threadIdx.x; ok && i < all; i += blockDim.x) {
        int32_t source = (int32_t)(i / words), word = (int32_t)(i % words);
        uint32_t payload = (uint32_t)first;

        if (i != threadIdx.x || first >> 32 != (uint32_t)x.epoch)
            ok = await_tagged(a.comm, from + i, (uint32_t)x.epoch, source, &payload);
        if (word >= ID_HEAD)
            s.ids[source * s.stride + word - ID_HEAD] = (int16_t)(int32_t)payload;
        else if (word == 1)
            s.o.capacity[source] = (int32_t)payload;
    }
    return all_content(a.comm, x, ok);
}

#endif
