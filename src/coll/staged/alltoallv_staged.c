/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * alltoallv_staged.c - counts by alltoall, then rows through the stages in as many exchanges as the
 * longest list of rows on any rank needs; the ready words tell its length. A receiver without room
 * takes the rows into its stage and drops them.
 */
#include "coll/alltoallv.h"
#include "coll/staged/staged.h"
#include "coll/verbs.h"
#include "kernels/host/row_copy.h"

enum { AWAIT_COUNTS = EPX_PHASE_VERB, NEXT, PACK, EXCHANGE };

/* Rows are copied into a stage, sent and copied out in turn. In messages of this size they stay in
 * the caches meanwhile, and the copies keep up with a link of 10 Gb/s, as those of 2 MiB do not. */
enum { MOST_MESSAGE_BYTES = 1 << 19 };

static int begin(struct epx_staged *staged, struct epx_request *request, int *moved)
{
    const struct epx_call *call = &request->call;
    int weighted;

    if (request->phase == EPX_PHASE_POST)
        epx_alltoallv_copy_counts(request, staged->counts);
    EPX_TRY(epx_staged_handshake(request, &weighted, moved));
    if (!*moved)
        return EPX_SUCCESS;
    return staged->messages->alltoall(staged->state, call->sendcounts, call->recvcounts,
                                      (int)sizeof(*call->sendcounts));
}

/* Rows that go to a rank at a time: at least one. */
static int64_t rows_a_round(const struct epx_staged *staged)
{
    int64_t rows = epx_staged_rows(staged, staged->cut.bytes);
    int64_t most = staged->cut.bytes ? MOST_MESSAGE_BYTES / staged->cut.bytes : rows;

    return rows > most && most > 0 ? most : rows;
}

static void place(struct epx_staged *staged, struct epx_request *request)
{
    int ranks = staged->comm->size;
    int64_t most = 0, rows;

    for (int r = 0; r < ranks; r++)
        most = staged->ready[r].most_rows > most ? staged->ready[r].most_rows : most;
    epx_alltoallv_place(request);
    staged->cut = epx_segments_cut(request->call.row_bytes, staged->share_bytes);
    rows = rows_a_round(staged);
    staged->per_round = (int32_t)rows;
    staged->round = -1;
    staged->num_rounds = staged->cut.bytes ? (most + rows - 1) / rows * staged->cut.num : 0;
    request->phase = NEXT;
}

/* First row and number of rows of a list in the round under way. */
static int64_t round_first(const struct epx_staged *staged)
{
    return staged->round / staged->cut.num * staged->per_round;
}

static int32_t round_rows(const struct epx_staged *staged, int64_t all)
{
    int64_t rest = all - round_first(staged);

    return rest < 0 ? 0 : rest < staged->per_round ? (int32_t)rest : staged->per_round;
}

static int64_t user_offset(const struct epx_staged *staged, int64_t row)
{
    return (row + round_first(staged)) * staged->cut.row_bytes +
           epx_segment_offset(staged->cut, staged->round % staged->cut.num);
}

/* Copies one segment of this round's rows for a rank into a stage. */
static void put_rows(const struct epx_staged *staged, int rank, const char *from)
{
    const struct epx_block *block = &staged->block;
    struct epx_stage_stores *stores = &block->stores[rank];
    int64_t bytes = epx_segment_length(staged->cut, staged->round % staged->cut.num);
    char *to = block->home_at[rank];

    epx_stage_stores_begin(stores, block->home_rows[rank], bytes);
    for (int32_t i = 0; i < block->home_rows[rank]; i++)
        epx_row_copy(to + i * block->row_stride, from + i * staged->cut.row_bytes, bytes,
                     stores->bypasses);
    epx_stage_stores_end(stores);
}

/* Copies one segment of num rows into the user's buffer. */
static void get_rows(const struct epx_request *request, int64_t row, const char *from,
                     int64_t from_stride, int32_t num)
{
    const struct epx_staged *staged = epx_staged_of(request);
    char *to = (char *)request->call.fields.at[0].out + user_offset(staged, row);
    int64_t bytes = epx_segment_length(staged->cut, staged->round % staged->cut.num);
    int bypasses = epx_rows_bypass(request->received_rows * staged->cut.row_bytes);

    for (int32_t i = 0; i < num; i++)
        epx_row_copy(to + i * staged->cut.row_bytes, from + i * from_stride, bytes, bypasses);
}

static int fits(const struct epx_request *request)
{
    return request->received_rows <= request->call.recv_capacity;
}

/* Rows to this rank itself need no stage; they are copied while the others are on their way. */
static void copy_own(const struct epx_staged *staged, const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    int self = staged->comm->rank;
    int32_t rows = round_rows(staged, call->sendcounts[self]);

    if (rows && fits(request))
        get_rows(request, call->rdispls[self],
                 (const char *)call->fields.at[0].in + user_offset(staged, call->sdispls[self]),
                 call->row_bytes, rows);
}

static int next(struct epx_staged *staged, struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    struct epx_block *block = &staged->block;

    if (++staged->round >= staged->num_rounds)
        return epx_alltoallv_finish(request);
    block->row_stride = epx_segment_length(staged->cut, staged->round % staged->cut.num);
    for (int r = 0; r < staged->comm->size; r++) {
        block->home_rows[r] = round_rows(staged, call->sendcounts[r]);
        block->expert_rows[r] = round_rows(staged, call->recvcounts[r]);
    }
    block->home_rows[staged->comm->rank] = block->expert_rows[staged->comm->rank] = 0;
    epx_staged_measure(staged);
    request->phase = PACK;
    return EPX_SUCCESS;
}

static int pack(struct epx_staged *staged, struct epx_request *request, int *moved)
{
    const struct epx_call *call = &request->call;
    const struct epx_block *block = &staged->block;

    if (!epx_staged_claim(staged, EPX_TO_EXPERTS))
        return EPX_SUCCESS;
    for (int r = 0; r < staged->comm->size; r++)
        if (block->home_rows[r])
            put_rows(staged, r,
                     (const char *)call->fields.at[0].in + user_offset(staged, call->sdispls[r]));
    *moved = 1;
    request->phase = EXCHANGE;
    EPX_TRY(epx_staged_send(staged, EPX_TO_EXPERTS));
    copy_own(staged, request);
    return EPX_SUCCESS;
}

static int unpack(struct epx_staged *staged, struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const struct epx_block *block = &staged->block;

    for (int r = 0; fits(request) && r < staged->comm->size; r++)
        if (block->expert_rows[r])
            get_rows(request, call->rdispls[r], staged->expert_at[r], block->row_stride,
                     block->expert_rows[r]);
    epx_row_copy_fence();
    request->phase = NEXT;
    return EPX_SUCCESS;
}

int epx_alltoallv_staged(struct epx_request *request, int *moved)
{
    struct epx_staged *staged = epx_staged_of(request);

    switch (request->phase) {
    case AWAIT_COUNTS:
        EPX_TRY(epx_staged_done(staged, moved));
        if (*moved)
            place(staged, request);
        return EPX_SUCCESS;
    case NEXT: *moved = 1; return next(staged, request);
    case PACK: return pack(staged, request, moved);
    case EXCHANGE:
        EPX_TRY(epx_staged_done(staged, moved));
        return *moved ? unpack(staged, request) : EPX_SUCCESS;
    default: return begin(staged, request, moved);
    }
}
