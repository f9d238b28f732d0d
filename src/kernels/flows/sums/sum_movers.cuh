/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_movers.cuh - the two roles of move_sums. The token numbers are cut into chunks. A sender's
 * warp claims one slice of a chunk after the other: it adds the pairs of each token of the chunk
 * that it has a record of, for one home after the other, and stores the sum to the home's stage. A
 * receiver waits for the parts of a token and adds them, with its own. sender_progress.cuh has the
 * protocol: which chunk a token is in follows from its number alone, so its home knows what it
 * waits for.
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_SUM_MOVERS_CUH
#define EPX_KERNELS_FLOWS_SUMS_SUM_MOVERS_CUH

#include "kernels/flows/sums/record_runs.cuh"
#include "kernels/flows/sums/sums.cuh"
#include "kernels/protocol/task_claims.cuh"
#include "kernels/warp/sum_ring.cuh"
#include "kernels/wires/sender_progress.cuh"

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

/* What the sums that a sender's warp sends are made of: those of the records of a slice of a chunk;
 * homes take turns, from the next rank on. */
template <typename T> struct sum_sender {
    const struct sum_mover &m;
    struct record_run *runs;
    struct task_claims claims;
    struct part part;
    int32_t i, most; /* records of the chunk of each home, as if all had as many */
    int32_t turn;    /* of the homes, from the next rank on */

    /* The whole warp: goes on to the next slice of a chunk. */
    __device__ bool find_chunk()
    {
        const int32_t slices = m.a.movers.slices.num;
        const int64_t num = (int64_t)m.a.movers.chunks * slices;

        if (claims.task >= num)
            return false;
        claim_next(m.a.comm, claims);
        if (claims.task >= num || __any_sync(~0u, aborted(m.a.comm))) {
            claims.task = num;
            return false;
        }
        const int32_t chunk = (int32_t)claims.task / slices;

        part = part_of(m.a.movers.slices, (int32_t)claims.task % slices, m.a.row_bytes);
        most = find_runs(m.a.plan, m.a.comm, begin_of_chunk(m, chunk), begin_of_chunk(m, chunk + 1),
                         runs);
        i = 0;
        turn = 1;
        return true;
    }

    __device__ void list(struct summands &sum, int32_t home, int64_t u) const
    {
        const struct epx_round round = epx_round_of(&m.a.rounds, 0);
        struct epx_wire_record *record =
            epx_wire_record_at(&m.a.plan, m.a.plan.records[m.a.comm.rank], home, u);

        list_pairs<T>(m.a, part.offset, record, sum.rows);
        if (lane_id() == 0) {
            sum.num_own = record->num_slots;
            sum.num_parts = sum.own_place = 0;
            sum.begins = part.offset == 0;
            sum.home = home;
            sum.word = (int32_t)claims.task;
            sum.token = record->token;
            sum.record = record;
            sum.elements = part.bytes / (int64_t)sizeof(typename T::part);
            sum.out = stored_places{m.a, round}.sum_for({home, u, record}) + part.offset;
        }
        __syncwarp();
    }

    /* The whole warp: lists the next sum that it is to send. */
    __device__ bool find(struct summands &sum, bool)
    {
        const int32_t ranks = m.a.comm.num_ranks;

        do {
            for (; i < most; i++, turn = 1)
                for (; turn < ranks; turn++) {
                    const int32_t home = (m.a.comm.rank + turn) % ranks;
                    const int64_t u = (int64_t)runs[home].next + i;

                    if (u < runs[home].end) {
                        list(sum, home, u);
                        turn++;
                        return true;
                    }
                }
        } while (find_chunk());
        return false;
    }

    /* The whole warp: tells the home of a sum. */
    __device__ void end(const struct summands &sum) const
    {
        const struct epx_round round = epx_round_of(&m.a.rounds, 0);

        if (m.weighted && sum.num_own && sum.begins)
            send_weights(m.a, sum.record,
                         stored_places{m.a, round}.weights_for({sum.home, 0, sum.record}));
        __syncwarp();
        EPX_DELAY(m.a.comm);
        if (lane_id() == 0)
            tell_rank(m.a.comm, m.epoch, sum.home, sum.word, sum.token + 1);
        __syncwarp();
    }
};

/* A sender's warp. */
template <typename T, bool ODD>
static __device__ void send_chunks(const struct sum_mover &m, struct record_run *runs,
                                   struct summands *sums, char *ring)
{
    struct sum_sender<T> sender = {
        m, runs, no_task_of(m.crew, &m.a.comm.state->runs), {0, 0}, 0, 0, 1
    };

    if (multiplies(m.a))
        add_sums<sum_kind<T, true, true>, ODD>(sender, ring, sums);
    else
        add_sums<sum_kind<T, true, false>, ODD>(sender, ring, sums);
}

/* The whole warp: lists the parts of a token that come from other ranks, behind its own rows. */
static __device__ void list_coming(const struct sum_mover &m, int64_t token, int64_t offset,
                                   int32_t num_own, struct summands &sum)
{
    const struct epx_round round = epx_round_of(&m.a.rounds, 0);
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
        const int32_t place = num_own + num + __popc(lanes & lanes_below());

        if (comes) {
            sum.rows.row[place] = places.part_of_token(token, i) + offset;
            sum.rows.node[place] = rank;
        }
        if (own)
            own_place = num + __popc(lanes & ((own & -own) - 1));
        num += __popc(lanes);
    }
    __syncwarp();
    if (m.a.plan.shape.by_choice && num)
        own_place =
            order_by_choice(m.a, token, sum.rows.row + num_own, sum.rows.node + num_own, num);
    if (lane_id() == 0) {
        sum.num_own = num_own;
        sum.num_parts = num;
        sum.own_place = own_place;
    }
    __syncwarp();
}

/* The word that tells of a slice of a token, and the step that it has to come to. */
struct told_slice {
    int32_t word;
    int64_t step;
};

static __device__ __forceinline__ struct told_slice told_slice_of(const struct sum_mover &m,
                                                                  int64_t task)
{
    const int32_t slices = m.a.movers.slices.num;
    const int64_t token = task / slices;

    return {word_of(m, chunk_of_token(m, token), (int32_t)(task % slices)), token + 1};
}

/* The whole warp: whether all parts of a sum have come. The list may be written then. */
static __device__ bool parts_have_come(const struct sum_mover &m, const struct told_slice &told,
                                       const struct summands &sum)
{
    bool ok = true;

    for (int32_t i = lane_id(); i < sum.num_parts; i += EPX_WARP)
        ok = ok &&
             has_progress(m.a.comm, m.epoch, sum.rows.node[sum.num_own + i], told.word, told.step);
    __syncwarp();
    return __all_sync(~0u, ok);
}

/* The whole warp: waits for all parts of a sum. */
static __device__ bool await_parts(const struct sum_mover &m, const struct told_slice &told,
                                   const struct summands &sum)
{
    bool ok = true;

    for (int32_t i = lane_id(); i < sum.num_parts; i += EPX_WARP)
        ok = ok && await_progress(m.a.comm, m.epoch, sum.rows.node[sum.num_own + i], told.word,
                                  told.step);
    return acquire_words(m.a.comm, ok);
}

/* What the sums that a receiver's warp takes are made of: those of slices of tokens. */
template <typename T> struct sum_receiver {
    const struct sum_mover &m;
    struct task_claims claims;
    bool listed; /* a task that is not begun yet */

    __device__ int64_t num_tasks() const
    {
        return (int64_t)m.a.num_tokens * m.a.movers.slices.num;
    }

    __device__ void list(struct summands &sum) const
    {
        const struct epx_slices &slices = m.a.movers.slices;
        const int64_t token = claims.task / slices.num;
        const struct part part =
            part_of(slices, (int32_t)(claims.task % slices.num), m.a.row_bytes);

        list_coming(m, token, part.offset, list_own<T>(m.a, token, part.offset, sum.rows), sum);
        if (lane_id() == 0) {
            sum.elements = part.bytes / (int64_t)sizeof(typename T::part);
            sum.out = m.a.sums + in_row<T>(token * m.a.rounds.cut.row_bytes + part.offset);
            sum.token = token;
            sum.begins = part.offset == 0;
        }
        __syncwarp();
    }

    /* The whole warp: claims the next task and lists it. */
    __device__ bool claim(struct summands &sum)
    {
        if (claims.task >= num_tasks())
            return false;
        claim_next(m.a.comm, claims);
        if (claims.task >= num_tasks())
            return false;
        list(sum);
        return true;
    }

    /* The whole warp: lists the next sum that it is to add; if it may wait, for what that is made
     * of. */
    __device__ bool find(struct summands &sum, bool waits)
    {
        if (!listed && !claim(sum))
            return false;
        listed = true;
        const struct told_slice told = told_slice_of(m, claims.task);

        if (!waits && !parts_have_come(m, told, sum))
            return false;
        listed = false;
        if (waits ? await_parts(m, told, sum) : acquire_words(m.a.comm, true))
            return true;
        claims.task = INT64_MAX;
        return false;
    }

    /* The whole warp: what a sum has beside its packs. */
    __device__ void end(const struct summands &sum) const
    {
        const struct epx_round round = epx_round_of(&m.a.rounds, 0);

        if (m.weighted && m.a.grad_weights && sum.begins)
            take_all_weights(m.a, stored_places{m.a, round}, sum.token);
        __syncwarp();
    }
};

/* A receiver's warp. */
template <typename T, bool ODD>
static __device__ void take_tokens(const struct sum_mover &m, struct summands *sums, char *ring)
{
    struct sum_receiver<T> receiver = {
        m, no_task_of(m.crew, &m.a.comm.state->taken), false
    };

    if (multiplies(m.a))
        add_sums<sum_kind<T, false, true>, ODD>(receiver, ring, sums);
    else
        add_sums<sum_kind<T, false, false>, ODD>(receiver, ring, sums);
}

#endif
