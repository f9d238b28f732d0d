/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_movers.cuh - the two roles of move_sums. The token numbers are cut into chunks. A sender's
 * warp claims one slice of a chunk after the other: it adds the pairs of each token of the chunk
 * that it has a record of, for one home after the other, and stores the sum to the home's stage. A
 * taker waits for the parts of a token and adds them, with its own. sender_progress.cuh has the
 * protocol: which chunk a token is in follows from its number alone, so its home knows what it
 * waits for.
 */
#ifndef EPX_KERNELS_STREAMING_SUM_MOVERS_CUH
#define EPX_KERNELS_STREAMING_SUM_MOVERS_CUH

#include "kernels/streaming/own_sums.cuh"
#include "kernels/streaming/record_runs.cuh"
#include "kernels/streaming/sender_progress.cuh"
#include "kernels/streaming/task_claims.cuh"

/* What a warp of either role knows. */
struct sum_mover {
    const struct epx_combine_rows &a;
    uint64_t epoch;
    struct crew crew; /* of its role */
    bool weighted;    /* gradients of weights come */
};

/* Where a chunk of the tokens of any rank begins. */
static __device__ __forceinline__ int64_t begin_of_chunk(const struct sum_mover &m, int64_t chunk)
{
    return (int64_t)m.a.plan.shape.max_tokens * chunk / m.a.movers.chunks;
}

/* The chunk of a token: the last that begins at it or before. */
static __device__ __forceinline__ int32_t chunk_of_token(const struct sum_mover &m, int64_t token)
{
    return (int32_t)(((token + 1) * m.a.movers.chunks - 1) / m.a.plan.shape.max_tokens);
}

/* The number of a slice of a chunk: a sender's task, and the word that tells of it. */
static __device__ __forceinline__ int32_t word_of(const struct sum_mover &m, int32_t chunk,
                                                  int32_t slice)
{
    return chunk * m.a.movers.slices.num + slice;
}

/* The whole warp: sends one sum and tells its home. */
template <typename T, enum row_loads LOADS>
static __device__ void send_part(const struct sum_mover &m, int32_t word, const struct part &part,
                                 const struct round_row &at, struct row_list &list)
{
    const struct round round = round_of(m.a.rounds, 0);

    send_sum<T, LOADS>(m.a, stored_places{m.a, round}, part, m.weighted, at, list);
    EPX_DELAY(m.a.comm);
    if (lane_id() == 0)
        tell_rank(m.a.comm, m.epoch, at.home, word, (int64_t)at.record->token + 1);
    __syncwarp();
}

/* The whole warp: all sums of a slice of a chunk; homes take turns, from the next rank on. */
template <typename T, enum row_loads LOADS>
static __device__ void send_chunk(const struct sum_mover &m, int32_t chunk, int32_t slice,
                                  struct record_run *runs, struct row_list &list)
{
    const struct part part = part_of(m.a.movers.slices, slice, m.a.row_bytes);
    const int32_t most =
        find_runs(m.a.plan, m.a.comm, begin_of_chunk(m, chunk), begin_of_chunk(m, chunk + 1), runs);
    const int32_t ranks = m.a.comm.num_ranks;
    char *records = m.a.plan.records[m.a.comm.rank];

#pragma unroll 1
    for (int32_t i = 0; i < most; i++)
#pragma unroll 1
        for (int32_t r = 1; r < ranks; r++) {
            const int32_t home = (m.a.comm.rank + r) % ranks;
            const int64_t u = (int64_t)runs[home].next + i;

            if (u < runs[home].end)
                send_part<T, LOADS>(m, word_of(m, chunk, slice), part,
                                    {home, u, epx_wire_record_at(&m.a.plan, records, home, u)},
                                    list);
        }
    __syncwarp();
}

/* A sender's warp. */
template <typename T, enum row_loads LOADS>
static __device__ void send_chunks(const struct sum_mover &m, struct record_run *runs,
                                   struct row_list &list)
{
    const int32_t slices = m.a.movers.slices.num;
    const int64_t num = (int64_t)m.a.movers.chunks * slices;
    struct task_claims claims = no_task_of(m.crew, &m.a.comm.state->runs);

#pragma unroll 1
    for (claim_next(claims); claims.task < num && !__any_sync(~0u, aborted(m.a.comm));
         claim_next(claims))
        send_chunk<T, LOADS>(m, (int32_t)claims.task / slices, (int32_t)claims.task % slices, runs,
                             list);
}

/* The whole warp: lists the parts of a token that come from other ranks, and which these are. */
static __device__ void list_coming(const struct sum_mover &m, int64_t token, int64_t offset,
                                   struct sum_list &list)
{
    const struct round round = round_of(m.a.rounds, 0);
    const struct stored_places places = {m.a, round};
    const int32_t most = m.a.plan.most_rows, rows = m.a.plan.token_num[token];
    int32_t num = 0, own_place = 0;

    for (int32_t i = lane_id(); i - lane_id() < most; i += EPX_WARP) {
        /* Loaded beside token_num: what lies behind the token's rows means nothing. */
        const int32_t rank = i < most ? m.a.plan.token_rank[token * most + i] : -1;
        const bool kept = i < most && places.has_part(token, i) && i < rows;
        const bool comes = kept && rank != m.a.comm.rank;
        const uint32_t lanes = __ballot_sync(~0u, comes);
        const uint32_t own = __ballot_sync(~0u, kept && !comes);
        const int32_t place = num + __popc(lanes & lanes_below());

        if (comes) {
            list.parts.row[place] = places.part_of_token(token, i) + offset;
            list.parts.node[place] = rank;
        }
        if (own)
            own_place = num + __popc(lanes & ((own & -own) - 1));
        num += __popc(lanes);
    }
    if (lane_id() == 0) {
        list.own_place = own_place;
        list.num_parts = num;
    }
    __syncwarp();
}

/* The word that tells of a slice of a token, and the step that it has to come to. */
struct told_slice {
    int32_t word;
    int64_t step;
};

static __device__ __forceinline__ struct told_slice told_slice_of(const struct sum_mover &m,
                                                                  int64_t token, int32_t slice)
{
    return {word_of(m, chunk_of_token(m, token), slice), token + 1};
}

/* The whole warp: whether all parts of the list have come. The list may be written then. */
static __device__ bool parts_have_come(const struct sum_mover &m, const struct told_slice &told,
                                       const struct sum_list &list)
{
    bool ok = true;

    for (int32_t i = lane_id(); i < list.num_parts; i += EPX_WARP)
        ok = ok && has_progress(m.a.comm, m.epoch, list.parts.node[i], told.word, told.step);
    __syncwarp();
    return __all_sync(~0u, ok);
}

/* The whole warp: waits for all parts of the list. */
static __device__ bool await_parts(const struct sum_mover &m, const struct told_slice &told,
                                   const struct sum_list &list)
{
    bool ok = true;

    for (int32_t i = lane_id(); i < list.num_parts; i += EPX_WARP)
        ok = ok && await_progress(m.a.comm, m.epoch, list.parts.node[i], told.word, told.step);
    return acquire_words(m.a.comm, ok);
}

/* The whole warp: lists what a slice of a token is the sum of. */
template <typename T>
static __device__ __forceinline__ void list_token(const struct sum_mover &m, int64_t token,
                                                  int32_t slice, struct sum_list &list)
{
    const struct part part = part_of(m.a.movers.slices, slice, m.a.row_bytes);

    list_coming(m, token, part.offset, list);
    list_own<T>(m.a, token, part.offset, list);
}

/* The whole warp: adds a slice of a token, which is listed, once it is there. */
template <typename T, enum row_loads LOADS>
static __device__ bool take_token(const struct sum_mover &m, int64_t token, int32_t slice,
                                  struct sum_list &list)
{
    const struct epx_combine_rows &a = m.a;
    const struct part part = part_of(a.movers.slices, slice, a.row_bytes);
    const struct round round = round_of(a.rounds, 0);

    if (!await_parts(m, told_slice_of(m, token, slice), list))
        return false;
    add_parts<T>(list, a.weights && !a.backward, part.bytes / (int64_t)sizeof(typename T::part),
                 a.sums + in_row<T>(token * a.rounds.cut.row_bytes + part.offset),
                 parts_are_here<LOADS>());
    if (m.weighted && a.grad_weights && part.offset == 0)
        take_all_weights(a, stored_places{a, round}, token);
    __syncwarp();
    return true;
}

/* A taker's warp. */
template <typename T, enum row_loads LOADS>
static __device__ void take_tokens(const struct sum_mover &m, struct sum_list &list)
{
    const int32_t slices = m.a.movers.slices.num;
    const int64_t num = (int64_t)m.a.num_tokens * slices;
    const auto is_here = [&](int64_t i) {
        list_coming(m, i / slices, 0, list);
        return parts_have_come(m, told_slice_of(m, i / slices, (int32_t)(i % slices)), list);
    };
    struct task_claims claims = no_task_of(m.crew, &m.a.comm.state->taken);

#pragma unroll 1
    for (next_task(m.a.comm, claims, num, is_here); claims.task < num;
         next_task(m.a.comm, claims, num, is_here)) {
        list_token<T>(m, claims.task / slices, (int32_t)(claims.task % slices), list);
        if (!take_token<T, LOADS>(m, claims.task / slices, (int32_t)(claims.task % slices), list))
            return;
    }
}

#endif
