/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staged.c - ready words by allgather, and rows packed by rank through two bounded stages.
 *
 * Rows move block by block: a block is the rows of a range of token indices, the same range on
 * every home rank, so all parts of a token travel in one exchange and the home can sum them at
 * once. Its size follows from the stage, the number of ranks and the row, which all ranks share,
 * and the number of blocks from the most tokens on any rank, which the count matrix tells: all
 * ranks make the same exchanges. If not even one token a rank fits, rows are cut in segments.
 */
#include "coll/staged/staged.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/jitter.h"
#include "coll/staged/peer_rows.h"
#include "coll/verbs.h"
#include "core/agree.h"
#include "core/route.h"

static int init(struct epx_staged *staged)
{
    struct epx_arrays *all = &staged->arrays;
    size_t ranks = (size_t)staged->comm->size;
    int64_t least = (int64_t)ranks * 2 * EPX_SEGMENT_QUANTUM;

    staged->stage_bytes = staged->comm->params.window_bytes;
    if (staged->stage_bytes < least)
        staged->stage_bytes = least;
    EPX_FAIL_IF(staged->stage_bytes > INT32_MAX, EPX_ERR_UNSUPPORTED,
                "%zu ranks need a stage of %lld bytes, more than MPI counts can tell", ranks,
                (long long)staged->stage_bytes);
    staged->share_bytes = staged->stage_bytes / (int64_t)ranks / EPX_LINE_BYTES * EPX_LINE_BYTES;
    EPX_ARRAY(all, staged->ready, ranks);
    EPX_ARRAY(all, staged->home_at, 2 * ranks);
    EPX_ARRAY(all, staged->home_row, ranks);
    EPX_ARRAY(all, staged->home_counts, 7 * ranks);
    EPX_ARRAY(all, staged->sums, ranks * EPX_MAX_TOP_K);
    EPX_ARRAY(all, staged->stores, ranks);
    EPX_FAIL_IF(all->failed, EPX_ERR_NO_MEM, "no memory for the staged algorithm on %zu ranks",
                ranks);
    return EPX_SUCCESS;
}

/* Collective, agreed. */
static int make_stages(struct epx_staged *staged)
{
    size_t bytes = (size_t)staged->stage_bytes;
    int rc = EPX_SUCCESS;

    if (staged->messages->stages && !staged->hier)
        return staged->messages->stages(staged->state, bytes, &staged->home_stage,
                                        &staged->expert_stage);
    staged->home_stage = epx_memory_zeroed(1, bytes);
    staged->expert_stage = epx_memory_zeroed(1, bytes);
    if (!staged->home_stage || !staged->expert_stage)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for stages of %zu bytes", bytes);
    return epx_comm_agree(staged->comm, rc);
}

/* Arrays of one element a rank, most of them cut from three allocations. */
static void place_arrays(struct epx_staged *staged)
{
    int ranks = staged->comm->size;
    int *ints = staged->home_counts;

    staged->expert_at = staged->home_at + ranks;
    staged->block.home_at = staged->home_at;
    staged->block.expert_at = staged->expert_at;
    staged->block.stores = staged->stores;
    staged->block.home_row = staged->home_row;
    staged->expert_counts = ints + ranks;
    staged->displs = ints + 2 * ranks;
    staged->block.home_rows = ints + 3 * ranks;
    staged->block.record = ints + 4 * ranks;
    staged->block.record_end = ints + 5 * ranks;
    staged->block.expert_rows = ints + 6 * ranks;
    for (int r = 0; r < ranks; r++)
        staged->displs[r] = (int)(r * staged->share_bytes);
}

int epx_staged_create(struct epx_transport *transport, int hier)
{
    struct epx_staged *staged = epx_memory_zeroed(1, sizeof(*staged));
    int rc = staged ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for the staged algorithm");

    transport->staged = staged;
    if (staged) {
        staged->comm = transport->comm;
        staged->messages = transport->ops->messages;
        staged->state = transport->state;
        staged->hier = hier;
        rc = init(staged);
    }
    EPX_TRY(epx_comm_agree(transport->comm, rc));
    EPX_TRY(make_stages(staged));
    place_arrays(staged);
    return epx_comm_agree(
        staged->comm,
        epx_peer_rows_create(staged->comm->everyone, staged->share_bytes, &staged->everyone));
}

void epx_staged_free(struct epx_transport *transport)
{
    struct epx_staged *staged = transport->staged;

    if (!staged)
        return;
    if (!staged->messages->stages || staged->hier) {
        free(staged->home_stage);
        free(staged->expert_stage);
    }
    epx_peer_rows_free(staged->everyone);
    epx_arrays_free(&staged->arrays);
    free(staged);
    transport->staged = NULL;
}

struct epx_staged *epx_staged_of(const struct epx_request *request)
{
    return epx_transport_of(request)->staged;
}

int epx_staged_done(struct epx_staged *staged, int *moved)
{
    int done = 0;

    EPX_TRY(staged->messages->done(staged->state, &done));
    *moved |= done;
    return EPX_SUCCESS;
}

void epx_staged_forget(struct epx_staged *staged)
{
    if (!staged->stale)
        return;
    epx_poison(staged->home_stage, (size_t)staged->stage_bytes);
    epx_poison(staged->expert_stage, (size_t)staged->stage_bytes);
    staged->stale = 0;
}

int epx_staged_lacks(const struct epx_request *request, int rank)
{
    const struct epx_staged *staged = epx_staged_of(request);
    const struct epx_message_ops *messages = staged->messages;

    if (request->waiting_for >= 0)
        return rank == request->waiting_for;
    return messages->came && !messages->came(staged->state, rank);
}

void epx_staged_count(const struct epx_staged *staged, int ranks)
{
    staged->comm->stats.messages += (uint64_t)ranks;
}

/* Where the transport does not see who comes last, ranks tell each other how long they waited in
 * the handshake before. */
static int post_ready(struct epx_staged *staged, const struct epx_request *request)
{
    staged->own = epx_ready_of(request);
    staged->own.block_tokens = staged->block_tokens;
    staged->own.waited_ns = staged->told.waited_ns;
    epx_staged_count(staged, staged->comm->size - 1);
    staged->posted_ns = staged->messages->came ? 0 : epx_now_ns();
    return staged->messages->allgather(staged->state, &staged->own, staged->ready,
                                       (int)sizeof(staged->own));
}

int epx_staged_handshake(struct epx_request *request, int *weighted, int *moved)
{
    struct epx_staged *staged = epx_staged_of(request);

    if (!(staged->hier && request->half == EPX_HALF_DISPATCH) &&
        epx_ready_skip(request, weighted, moved))
        return EPX_SUCCESS;
    if (request->phase == EPX_PHASE_POST) {
        epx_jitter();
        staged->stale = 1;
        epx_staged_forget(staged);
        request->phase = EPX_PHASE_AGREE;
        EPX_TRY(post_ready(staged, request));
    }
    EPX_TRY(epx_staged_done(staged, moved));
    if (!*moved)
        return EPX_SUCCESS;
    if (staged->posted_ns)
        epx_waits_compare(&staged->comm->waits, &staged->told, epx_now_ns() - staged->posted_ns,
                          &staged->ready[0].waited_ns, sizeof(staged->ready[0]));
    request->phase = EPX_PHASE_VERB;
    return epx_ready_agree(request, staged->ready, weighted);
}

static int64_t rows_in(int64_t bytes, int64_t row_stride)
{
    int64_t rows = bytes / (row_stride ? row_stride : 1);

    return rows < 1 ? 1 : rows > INT32_MAX / 2 ? INT32_MAX / 2 : rows;
}

int64_t epx_staged_rows(const struct epx_staged *staged, int64_t row_stride)
{
    return rows_in(staged->share_bytes, row_stride);
}

static int32_t most_tokens(const struct epx_plan *plan)
{
    int32_t most = 0;

    for (int32_t s = 0; s < plan->num_ranks; s++) {
        int32_t tokens = *epx_num_tokens(epx_plan_counts(plan, s), plan->count_shape);

        most = tokens > most ? tokens : most;
    }
    return most;
}

int64_t epx_staged_weight_bytes(const struct epx_plan *plan)
{
    return epx_round_up(4 * (int64_t)plan->shape.top_k, 8);
}

/* Bytes from one row to the next in a stage. */
static int64_t stride(const struct epx_staged *staged, int64_t segment)
{
    return epx_round_up(epx_segment_length(staged->cut, segment), 8) +
           (segment == 0 ? staged->weight_bytes : 0);
}

void epx_staged_begin(struct epx_staged *staged, const struct epx_request *request,
                      int rows_per_token, int weighted)
{
    struct epx_block *block = &staged->block;
    const struct epx_plan *plan = request->route->plan;
    int64_t share = staged->share_bytes * staged->comm->size / rows_per_token;
    int64_t most = INT32_MAX / staged->comm->size; /* bytes of all ranks' rows are told as int */

    share = share < most ? share : most;
    staged->plan = plan;
    staged->weight_bytes = weighted ? epx_staged_weight_bytes(plan) : 0;
    staged->cut =
        epx_segments_cut(epx_wire_row_bytes(request), (share - staged->weight_bytes) / 8 * 8);
    staged->per_round = (int32_t)rows_in(share, stride(staged, 0));
    staged->home = epx_home_rows_of(request, staged->cut, weighted);
    staged->expert = epx_expert_rows_of(request, staged->cut, weighted, staged->sums);
    staged->most_tokens = most_tokens(plan);
    block->first_token = block->end_token = 0;
    block->segment = staged->cut.num - 1;
    staged->next_token = 0;
    for (int32_t r = 0; r < plan->num_ranks; r++) {
        block->home_row[r] = plan->send_offset[r];
        block->home_rows[r] = 0;
        block->record[r] = block->record_end[r] = 0;
    }
}

/* Clips the end of a range of tokens to the tokens that this rank has. */
static int32_t clip_token(const struct epx_plan *plan, int32_t token)
{
    return token < plan->num_tokens ? token : plan->num_tokens;
}

static void find_home_rows(struct epx_block *block, const struct epx_plan *plan, int32_t rank)
{
    int64_t end = plan->send_offset[rank] + plan->send_rows[rank];
    int64_t row = block->home_row[rank] + block->home_rows[rank];

    block->home_row[rank] = row;
    while (row < end && plan->send_token[row] < block->end_token)
        row++;
    block->home_rows[rank] = (int32_t)(row - block->home_row[rank]);
}

static void find_expert_rows(struct epx_block *block, const struct epx_plan *plan, int32_t end,
                             int32_t rank)
{
    int32_t u = block->record_end[rank];

    block->record[rank] = u;
    block->expert_rows[rank] = 0;
    for (; u < plan->view.rank_counts[rank]; u++) {
        const int32_t *record = epx_plan_record(plan, rank, u);

        if (record[EPX_RECORD_TOKEN] >= end)
            break;
        block->expert_rows[rank] += record[EPX_RECORD_SLOTS] > 0;
    }
    block->record_end[rank] = u;
}

int epx_staged_has_block(const struct epx_staged *staged)
{
    return staged->block.segment + 1 < staged->cut.num || staged->next_token < staged->most_tokens;
}

void epx_staged_find_block(struct epx_staged *staged)
{
    struct epx_block *block = &staged->block;
    const struct epx_plan *plan = staged->plan;
    int64_t first = staged->next_token, end = first + staged->per_round;
    int32_t last = end < INT32_MAX ? (int32_t)end : INT32_MAX;

    block->segment = (block->segment + 1) % staged->cut.num;
    block->row_stride = stride(staged, block->segment);
    if (block->segment > 0)
        return;
    staged->next_token = last;
    block->first_token = clip_token(plan, (int32_t)first);
    block->end_token = clip_token(plan, last);
    for (int32_t r = 0; r < plan->num_ranks; r++) {
        find_home_rows(block, plan, r);
        find_expert_rows(block, plan, last, r);
    }
}

void epx_staged_measure(struct epx_staged *staged)
{
    const struct epx_block *block = &staged->block;

    for (int r = 0; r < staged->comm->size; r++) {
        staged->home_counts[r] = (int)(block->home_rows[r] * block->row_stride);
        staged->expert_counts[r] = (int)(block->expert_rows[r] * block->row_stride);
    }
}

int epx_staged_claim(struct epx_staged *staged, enum epx_direction direction)
{
    char *from = direction == EPX_TO_EXPERTS ? staged->home_stage : staged->expert_stage;
    char *into = direction == EPX_TO_EXPERTS ? staged->expert_stage : staged->home_stage;
    char **out_at = direction == EPX_TO_EXPERTS ? staged->home_at : staged->expert_at;
    char **in_at = direction == EPX_TO_EXPERTS ? staged->expert_at : staged->home_at;
    int claimed = 1;

    epx_staged_forget(staged);
    for (int r = 0; r < staged->comm->size; r++) {
        out_at[r] = from + staged->displs[r];
        in_at[r] = into + staged->displs[r];
        if (staged->messages->place && !staged->hier)
            out_at[r] = staged->messages->place(staged->state, r, out_at[r],
                                                into + staged->displs[staged->comm->rank]);
        staged->stores[r].there = r != staged->comm->rank && out_at[r] != from + staged->displs[r];
        claimed &= out_at[r] != NULL;
    }
    return claimed;
}

int epx_staged_exchange(struct epx_staged *staged, enum epx_direction direction, char *expert_rows,
                        const int *home_displs, const int *expert_displs)
{
    struct epx_blocks home = {staged->home_stage, staged->home_counts, home_displs};
    struct epx_blocks expert = {expert_rows, staged->expert_counts, expert_displs};

    epx_jitter();
    epx_staged_count(staged, staged->comm->size - 1);
    if (direction == EPX_TO_EXPERTS)
        return staged->messages->alltoallv(staged->state, home, expert);
    return staged->messages->alltoallv(staged->state, expert, home);
}

int epx_staged_send(struct epx_staged *staged, enum epx_direction direction)
{
    staged->stale = 1;
    return epx_staged_exchange(staged, direction, staged->expert_stage, staged->displs,
                               staged->displs);
}

enum epx_direction epx_direction_of(const struct epx_request *request)
{
    return epx_verb_adds(request->call.verb) ? EPX_TO_HOMES : EPX_TO_EXPERTS;
}

int epx_staged_may_fill(struct epx_request *request, int *moved)
{
    *moved |= epx_staged_claim(epx_staged_of(request), epx_direction_of(request));
    return EPX_SUCCESS;
}

int epx_staged_has_come(struct epx_request *request, int *moved)
{
    return epx_staged_done(epx_staged_of(request), moved);
}

int epx_staged_step(struct epx_request *request, const struct epx_step steps[EPX_BLOCK_STEPS],
                    int *moved)
{
    const int at = request->phase - EPX_PHASE_VERB;

    EPX_TRY(steps[at].ready(request, moved));
    if (!*moved || request->complete)
        return EPX_SUCCESS;
    request->phase = EPX_PHASE_VERB + (at + 1) % EPX_BLOCK_STEPS;
    return steps[at].act ? steps[at].act(request) : EPX_SUCCESS;
}
