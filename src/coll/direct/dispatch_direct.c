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
 *
 * Fields are stored one by one if all receive buffers of a rank are in window memory; if one is
 * not, that rank takes all its fields from the ring, as one row.
 */
#include "base/jitter.h"
#include "coll/direct/direct.h"
#include "coll/verbs.h"

/* Where a rank's receive buffer of a field can be stored into; an empty one can be anywhere. */
static char *find_buffer(const struct epx_direct *direct, const struct epx_field *field, int f,
                         int rank)
{
    const struct epx_ready_field *told = &direct->ready[rank].fields[f];
    char *anywhere = direct->window->own;
    const struct epx_segment *segment;

    if (rank == direct->comm->rank)
        return field->out ? field->out : anywhere;
    segment = epx_segment_of_id(direct->comm->segments, told->segment);
    return segment ? segment->window->address[rank] + told->offset : anywhere;
}

/* Whether other ranks can store rows to a rank; rows of no bytes, which bring weights alone, always
 * can be. */
static int takes_stores(const struct epx_direct *direct, int rank)
{
    return !direct->cut.row_bytes || epx_ready_takes_stores(&direct->ready[rank]);
}

/* A rank's receive buffers if they can be stored into; NULL if only its ring takes rows. */
static void find_buffers(struct epx_direct *direct, const struct epx_fields *fields, int rank)
{
    int takes = rank == direct->comm->rank || takes_stores(direct, rank);

    direct->buffers[rank][0] = NULL;
    for (int f = 0; f < fields->num && takes && !direct->expert.scales; f++)
        direct->buffers[rank][f] = find_buffer(direct, &fields->at[f], f, rank);
}

static int own_buffer_takes(const struct epx_direct *direct, int source)
{
    int me = direct->comm->rank;

    return !direct->expert.scales && (source == me || takes_stores(direct, me));
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
        find_buffers(direct, &call->fields, r);
    if (weighted)
        epx_poison(plan->pair_weights, (size_t)plan->shape.max_tokens * (size_t)plan->shape.top_k *
                                           sizeof(*plan->pair_weights));
    if (weighted && call->num_tokens)
        memcpy(plan->pair_weights, call->weights_in,
               (size_t)call->num_tokens * (size_t)plan->shape.top_k * sizeof(*plan->pair_weights));
    epx_moves_begin(request, weighted);
}

/* Fetches the pair weights of a row, in pair order. */
static inline void fetch_weights(const struct epx_direct *direct, int source, int32_t *record,
                                 float *weights)
{
    const struct epx_plan *plan = direct->plan;
    const uint8_t *choices = epx_record_choices(record, plan->record_shape);
    const float *from =
        plan->pair_weights_of[source] + (int64_t)record[EPX_RECORD_TOKEN] * plan->shape.top_k;

    for (int i = 0; i < record[EPX_RECORD_PAIRS]; i++)
        weights[i] = from[choices[i]];
}

static void receive(struct epx_direct *direct, int source, int32_t *record, int64_t segment,
                    const char *data)
{
    float weights[EPX_MAX_TOP_K];

    if (direct->expert.weighted && segment == 0)
        fetch_weights(direct, source, record, weights);
    epx_receive_row(direct->plan, &direct->expert, source, record,
                    (struct epx_row_segment){segment, data, weights});
}

/* Receives a row that lies in the buffers of its fields, as row number `row` of each. */
static void receive_from(struct epx_direct *direct, int source, int32_t *record, int64_t row)
{
    const struct epx_fields *fields = direct->expert.fields;
    int own = source == direct->comm->rank;
    const char *from[EPX_MAX_FIELDS];
    float weights[EPX_MAX_TOP_K];

    for (int f = 0; f < fields->num; f++)
        from[f] =
            (const char *)(own ? fields->at[f].in : fields->at[f].out) + row * fields->at[f].bytes;
    if (direct->expert.weighted)
        fetch_weights(direct, source, record, weights);
    epx_receive_fields(direct->plan, &direct->expert, record, from, weights);
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

/* Copies a token's row for this rank itself from the user's buffers to all its slots; returns the
 * bytes. */
static int64_t receive_own(struct epx_direct *direct)
{
    int me = direct->comm->rank;
    int32_t *record = next_record(direct, me);

    receive_from(direct, me, record, direct->token);
    direct->from[me].row++;
    return record[EPX_RECORD_SLOTS] * direct->cut.row_bytes;
}

/* Stores the fields of a token's row to a slot of another rank. */
static void store_fields(const struct epx_direct *direct, const struct epx_fields *fields,
                         char *const to[], int64_t slot)
{
    for (int f = 0; f < fields->num; f++) {
        int64_t bytes = fields->at[f].bytes;

        epx_row_copy(to[f] + slot * bytes, (const char *)fields->at[f].in + direct->token * bytes,
                     bytes, direct->bypasses);
    }
}

/* Stores one token to all receive buffers that can be stored into; returns the bytes. */
static int64_t store_token(struct epx_direct *direct, const struct epx_request *request)
{
    const struct epx_plan *plan = direct->plan;
    int64_t stored = 0;

    for (int64_t i = plan->token_offset[direct->token]; i < plan->token_offset[direct->token + 1];
         i++) {
        char *const *to = direct->buffers[plan->token_rank[i]];

        if (!to[0])
            continue;
        if (plan->token_rank[i] == plan->rank) {
            stored += receive_own(direct);
            continue;
        }
        store_fields(direct, &request->call.fields, to, plan->token_slot[i]);
        stored += direct->cut.row_bytes;
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
static int push_rows(struct epx_direct *direct, int rank)
{
    const struct epx_plan *plan = direct->plan;
    struct epx_cursor *to = &direct->to[rank];
    int64_t pushed = 0;
    char *slot;

    if (direct->buffers[rank][0])
        return 0;
    while (to->row < plan->send_rows[rank] && pushed < EPX_DIRECT_STRIDE &&
           (slot = epx_ring_claim(direct, rank))) {
        int32_t token = plan->send_token[plan->send_offset[rank] + to->row];

        epx_gather_row(&direct->home, token, to->segment, slot, 0);
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
    int64_t spread = 0;
    int32_t *record;

    if (source == direct->comm->rank ||
        direct->from[source].row == direct->plan->view.rank_counts[source] ||
        !epx_direct_arrived(direct, request, source))
        return 0;
    while (spread < EPX_DIRECT_STRIDE && (record = next_record(direct, source))) {
        receive_from(direct, source, record, epx_record_slots(record)[0]);
        spread += record[EPX_RECORD_SLOTS] * (direct->cut.row_bytes + 1);
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
    if (!direct->buffers[rank][0] && direct->to[rank].row < direct->plan->send_rows[rank])
        return 0;
    return !next_record(direct, rank) &&
           (!own_buffer_takes(direct, rank) || epx_direct_arrived(direct, request, rank));
}

static int move(struct epx_direct *direct, struct epx_request *request, int *moved)
{
    *moved |= store_tokens(direct, request);
    request->complete = direct->token > direct->plan->num_tokens;
    for (int r = 0; r < direct->comm->size; r++) {
        *moved |= push_rows(direct, r);
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
