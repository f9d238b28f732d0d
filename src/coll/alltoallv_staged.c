/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * alltoallv_staged.c - counts by alltoall, then rows through the stages in as many exchanges as
 * the longest list of rows on any rank needs; the ready words tell its length. A receiver
 * without room takes the rows into its stage and lets them go.
 */
#include "alltoallv.h"
#include "staged.h"
#include "verbs.h"

enum { AWAIT_COUNTS = EPX_PHASE_VERB, PACK, EXCHANGE };

static int begin(struct epx_staged *staged, struct epx_request *request, int *moved)
{
    int weighted;

    EPX_TRY(epx_staged_handshake(request, &weighted, moved));
    if (!*moved)
        return EPX_SUCCESS;
    memcpy(staged->counts_out, request->call.sendcounts,
           (size_t)staged->comm->size * sizeof(*staged->counts_out));
    return staged->transport->ops->alltoall(staged->transport->state, staged->counts_out,
                                            staged->counts_in, (int)sizeof(*staged->counts_out));
}

static void place(struct epx_staged *staged, struct epx_request *request)
{
    int ranks = staged->comm->size;
    int64_t most = 0, rows;

    for (int r = 0; r < ranks; r++) {
        request->call.recvcounts[r] = staged->counts_in[r];
        most = staged->ready[r].most_rows > most ? staged->ready[r].most_rows : most;
    }
    epx_alltoallv_place(request);
    staged->cut = epx_segments_cut(request->call.row_bytes, staged->stage_bytes / ranks);
    staged->block.row_stride = staged->cut.bytes;
    rows = epx_staged_rows(staged, staged->cut.bytes);
    staged->per_round = (int32_t)rows;
    staged->round = -1;
    staged->num_rounds = staged->cut.bytes ? (most + rows - 1) / rows * staged->cut.num : 0;
    request->phase = PACK;
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

/* Copies one segment of num rows between a user's buffer and a stage. */
static void copy_rows(const struct epx_staged *staged, char *to, int64_t to_stride,
                      const char *from, int64_t from_stride, int32_t num)
{
    size_t bytes = (size_t)epx_segment_length(staged->cut, staged->round % staged->cut.num);

    for (int32_t i = 0; i < num; i++)
        memcpy(to + i * to_stride, from + i * from_stride, bytes);
}

static int64_t user_offset(const struct epx_staged *staged, int64_t row)
{
    return (row + round_first(staged)) * staged->cut.row_bytes +
           epx_segment_offset(staged->cut, staged->round % staged->cut.num);
}

static int pack(struct epx_staged *staged, struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    struct epx_block *block = &staged->block;
    int ranks = staged->comm->size;

    for (int r = 0; r < ranks; r++) {
        block->home_rows[r] = round_rows(staged, call->sendcounts[r]);
        block->expert_rows[r] = round_rows(staged, call->recvcounts[r]);
    }
    epx_staged_pack(block->home_rows, ranks, block->row_stride, staged->home_at,
                    staged->home_counts, staged->home_displs);
    epx_staged_pack(block->expert_rows, ranks, block->row_stride, staged->expert_at,
                    staged->expert_counts, staged->expert_displs);
    for (int r = 0; r < ranks; r++)
        copy_rows(staged, staged->home_stage + staged->home_at[r], block->row_stride,
                  (const char *)call->rows_in + user_offset(staged, call->sdispls[r]),
                  call->row_bytes, block->home_rows[r]);
    request->phase = EXCHANGE;
    return epx_staged_to_experts(staged);
}

static int unpack(struct epx_staged *staged, struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const struct epx_block *block = &staged->block;
    int fits = request->received_rows <= call->recv_capacity;

    for (int r = 0; fits && r < staged->comm->size; r++)
        copy_rows(staged, (char *)call->rows_out + user_offset(staged, call->rdispls[r]),
                  call->row_bytes, staged->expert_stage + staged->expert_at[r], block->row_stride,
                  block->expert_rows[r]);
    request->phase = PACK;
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
    case PACK:
        *moved = 1;
        return ++staged->round < staged->num_rounds ? pack(staged, request)
                                                    : epx_alltoallv_finish(request);
    case EXCHANGE:
        EPX_TRY(epx_staged_done(staged, moved));
        return *moved ? unpack(staged, request) : EPX_SUCCESS;
    default: return begin(staged, request, moved);
    }
}
