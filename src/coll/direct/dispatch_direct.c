/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dispatch_direct.c - dispatch by stores into the windows of the experts' ranks.
 *
 * A receive buffer in window memory is stored into at once: a token is read once and stored to
 * all its slots on this rank and to the first slot of each other rank that needs it; when a
 * rank's rows are all there the receiver copies them to their other slots. Another receive
 * buffer, and combine backward, which scales what it receives, take their rows from rings. A
 * rank's own rows never need a ring unless they are scaled. Pair weights are put into this rank's
 * own pair_weights before any row, and the receiver fetches them there.
 */
#include "base/jitter.h"
#include "coll/direct/direct.h"
#include "coll/verbs.h"

/* A rank's receive buffer where it can be stored into; NULL if only its ring takes rows. */
static char *find_buffer(const struct epx_direct *direct, const struct epx_request *request,
                         int rank)
{
    const struct epx_ready *ready = &direct->ready[rank];
    const struct epx_segment *segment;

    if (direct->expert.scales)
        return NULL;
    if (rank == direct->comm->rank)
        return request->call.rows_out ? request->call.rows_out : (char *)direct->window->own;
    segment = epx_segment_of_id(direct->comm->segments, ready->segment);
    return segment ? segment->window->address[rank] + ready->offset : NULL;
}

static int own_buffer_takes(const struct epx_direct *direct, int source)
{
    int me = direct->comm->rank;

    return !direct->expert.scales && (source == me || direct->ready[me].segment >= 0);
}

static void begin(struct epx_direct *direct, struct epx_request *request, int weighted)
{
    const struct epx_call *call = &request->call;
    struct epx_plan *plan = request->route->plan;

    direct->plan = plan;
    epx_direct_begin(direct, call->row_bytes);
    direct->home = epx_home_rows_of(request, direct->cut, weighted);
    direct->expert = epx_expert_rows_of(request, direct->cut, weighted, direct->sums);
    direct->bypasses = epx_rows_bypass(plan->send_offset[plan->num_ranks] * call->row_bytes);
    for (int r = 0; r < direct->comm->size; r++)
        direct->buffers[r] = find_buffer(direct, request, r);
    if (weighted)
        epx_poison(plan->pair_weights, (size_t)plan->shape.max_tokens * (size_t)plan->shape.top_k *
                                           sizeof(*plan->pair_weights));
    if (weighted && call->num_tokens)
        memcpy(plan->pair_weights, call->weights_in,
               (size_t)call->num_tokens * (size_t)plan->shape.top_k * sizeof(*plan->pair_weights));
    epx_dispatch_begin(request, weighted);
}

static void receive(struct epx_direct *direct, int source, int32_t *record, int64_t segment,
                    const char *data)
{
    const struct epx_plan *plan = direct->plan;
    const uint8_t *choices = epx_record_choices(record, plan->record_shape);
    float weights[EPX_MAX_TOP_K];

    if (direct->expert.weighted && segment == 0)
        for (int i = 0; i < record[EPX_RECORD_PAIRS]; i++)
            weights[i] = plan->pair_weights_of[source][(int64_t)record[EPX_RECORD_TOKEN] *
                                                           plan->shape.top_k +
                                                       choices[i]];
    epx_receive_row(plan, &direct->expert, source, record,
                    (struct epx_row_segment){segment, data, weights});
}

/* The next record of a source whose row travels; NULL at the end. */
static int32_t *next_record(struct epx_direct *direct, int source)
{
    const struct epx_plan *plan = direct->plan;
    struct epx_cursor *from = &direct->from[source];

    while (from->row < plan->view.rank_counts[source]) {
        int32_t *record = epx_plan_record(plan, source, from->row);

        if (record[EPX_RECORD_SLOTS])
            return record;
        from->row++;
    }
    return NULL;
}

static void receive_segments(struct epx_direct *direct, int source, int32_t *record,
                             const char *row)
{
    for (int64_t segment = 0; segment < direct->cut.num; segment++)
        receive(direct, source, record, segment, row + epx_segment_offset(direct->cut, segment));
}

/* Copies a row for this rank itself from the user's buffer to all its slots; returns the bytes. */
static int64_t receive_own(struct epx_direct *direct, const char *row)
{
    int me = direct->comm->rank;
    int32_t *record = next_record(direct, me);

    receive_segments(direct, me, record, row);
    direct->from[me].row++;
    return record[EPX_RECORD_SLOTS] * direct->cut.row_bytes;
}

/* Stores one token to all receive buffers that can be stored into; returns the bytes. */
static int64_t store_token(struct epx_direct *direct, const struct epx_request *request)
{
    const struct epx_plan *plan = direct->plan;
    int64_t row_bytes = request->call.row_bytes, stored = 0;
    const char *row = (const char *)request->call.rows_in + direct->token * row_bytes;

    for (int64_t i = plan->token_offset[direct->token]; i < plan->token_offset[direct->token + 1];
         i++) {
        char *to = direct->buffers[plan->token_rank[i]];

        if (!to)
            continue;
        if (plan->token_rank[i] == plan->rank) {
            stored += receive_own(direct, row);
            continue;
        }
        epx_row_copy(to + plan->token_slot[i] * row_bytes, row, row_bytes, direct->bypasses);
        stored += row_bytes;
    }
    return stored;
}

static int store_tokens(struct epx_direct *direct, const struct epx_request *request)
{
    int64_t stored = 0;

    if (direct->token > direct->plan->num_tokens)
        return 0;
    for (; direct->token < direct->plan->num_tokens && stored < EPX_DIRECT_STRIDE; direct->token++)
        stored += store_token(direct, request);
    if (direct->token == direct->plan->num_tokens) {
        epx_row_copy_fence();
        for (int r = 0; r < direct->comm->size; r++)
            epx_direct_post_arrival(direct, request, r);
        direct->token++;
    }
    return 1;
}

/* Puts rows for one rank into its ring, in record order. */
static int push_rows(struct epx_direct *direct, const struct epx_request *request, int rank)
{
    const struct epx_plan *plan = direct->plan;
    struct epx_cursor *to = &direct->to[rank];
    int64_t pushed = 0;
    char *slot;

    if (direct->buffers[rank])
        return 0;
    while (to->row < plan->send_rows[rank] && pushed < EPX_DIRECT_STRIDE &&
           (slot = epx_ring_claim(direct, rank))) {
        int32_t token = plan->send_token[plan->send_offset[rank] + to->row];
        int64_t bytes = epx_segment_length(direct->cut, to->segment);

        memcpy(slot,
               (const char *)request->call.rows_in + token * direct->cut.row_bytes +
                   epx_segment_offset(direct->cut, to->segment),
               (size_t)bytes);
        epx_ring_push(direct, rank);
        pushed += direct->slot_bytes;
        epx_cursor_step(to, direct->cut);
    }
    if (pushed)
        epx_ring_publish(direct, rank);
    return pushed > 0;
}

/* Copies the rows that a source stored into their first slots to their other slots. */
static int spread_rows(struct epx_direct *direct, const struct epx_request *request, int source)
{
    const struct epx_call *call = &request->call;
    int64_t spread = 0;
    int32_t *record;

    if (source == direct->comm->rank ||
        direct->from[source].row == direct->plan->view.rank_counts[source] ||
        !epx_direct_arrived(direct, request, source))
        return 0;
    while (spread < EPX_DIRECT_STRIDE && (record = next_record(direct, source))) {
        receive_segments(direct, source, record,
                         (char *)call->rows_out + epx_record_slots(record)[0] * call->row_bytes);
        spread += record[EPX_RECORD_SLOTS] * (call->row_bytes + 1);
        direct->from[source].row++;
    }
    epx_row_copy_fence();
    return 1;
}

static int pop_rows(struct epx_direct *direct, int source)
{
    struct epx_cursor *from = &direct->from[source];
    int64_t popped = 0;
    const char *slot;
    int32_t *record;

    while (popped < EPX_DIRECT_STRIDE && (record = next_record(direct, source)) &&
           (slot = epx_ring_peek(direct, source))) {
        receive(direct, source, record, from->segment, slot);
        epx_ring_pop(direct, source);
        popped += direct->slot_bytes;
        epx_cursor_step(from, direct->cut);
    }
    if (popped) {
        epx_row_copy_fence();
        epx_ring_release(direct, source);
    }
    return popped > 0;
}

/* Whether all rows from and to a rank have moved. */
static int through_with(struct epx_direct *direct, const struct epx_request *request, int rank)
{
    if (!direct->buffers[rank] && direct->to[rank].row < direct->plan->send_rows[rank])
        return 0;
    return !next_record(direct, rank) &&
           (!own_buffer_takes(direct, rank) || epx_direct_arrived(direct, request, rank));
}

static int move(struct epx_direct *direct, struct epx_request *request, int *moved)
{
    *moved |= store_tokens(direct, request);
    request->complete = direct->token > direct->plan->num_tokens;
    for (int r = 0; r < direct->comm->size; r++) {
        *moved |= push_rows(direct, request, r);
        *moved |=
            own_buffer_takes(direct, r) ? spread_rows(direct, request, r) : pop_rows(direct, r);
        if (!through_with(direct, request, r)) {
            request->complete = 0;
            request->waiting_for = r;
        }
    }
    return EPX_SUCCESS;
}

int epx_dispatch_direct(struct epx_request *request, int *moved)
{
    struct epx_direct *direct = epx_direct_of(request);
    int weighted;

    if (request->phase == EPX_PHASE_VERB)
        return move(direct, request, moved);
    EPX_TRY(epx_direct_handshake(request, &weighted, moved));
    if (*moved)
        begin(direct, request, weighted);
    return EPX_SUCCESS;
}
