/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_direct.c - combine through the home ranks' rings. An expert's rank sums the pairs of
 * each unique row straight into the ring of the row's home, in record order, which is token
 * order; the home walks its tokens and adds the heads of the rings of the ranks that a token has
 * rows from, in rank order. So a bounded ring is enough and every output is written once. The
 * gradients of pair weights are stored into the home's pair_weights ahead of their row.
 */
#include "coll/direct/direct.h"
#include "coll/verbs.h"

static void begin(struct epx_direct *direct, struct epx_request *request, int weighted)
{
    direct->plan = request->route->plan;
    epx_direct_begin(direct, epx_wire_row_bytes(request));
    direct->home = epx_home_rows_of(request, direct->cut, weighted);
    direct->expert = epx_expert_rows_of(request, direct->cut, weighted, direct->sums);
    epx_moves_begin(request, weighted);
}

static void store_weights(const struct epx_direct *direct, int home, int32_t *record)
{
    const struct epx_plan *plan = direct->plan;
    const uint8_t *choices = epx_record_choices(record, plan->record_shape);
    float weights[EPX_MAX_TOP_K];
    float *to = plan->pair_weights_of[home] + (int64_t)record[EPX_RECORD_TOKEN] * plan->shape.top_k;

    epx_take_pair_weights(plan, &direct->expert, record, weights);
    for (int i = 0; i < record[EPX_RECORD_PAIRS]; i++)
        to[choices[i]] = weights[i];
}

/* Sums the next rows of one home rank into its ring. */
static int push_sums(struct epx_direct *direct, int home)
{
    const struct epx_plan *plan = direct->plan;
    struct epx_cursor *to = &direct->to[home];
    int64_t pushed = 0;
    char *slot;

    while (to->row < plan->view.rank_counts[home] && pushed < EPX_DIRECT_STRIDE) {
        int32_t *record = epx_plan_record(plan, home, to->row);

        if (record[EPX_RECORD_SLOTS] == 0) {
            to->row++;
            continue;
        }
        slot = epx_ring_claim(direct, home);
        if (!slot)
            break;
        epx_sum_row_pairs(plan, &direct->expert, record, to->segment, slot);
        if (direct->expert.weighted && to->segment == 0)
            store_weights(direct, home, record);
        epx_ring_push(direct, home);
        pushed += direct->slot_bytes;
        epx_cursor_step(to, direct->cut);
    }
    if (pushed)
        epx_ring_publish(direct, home);
    return pushed > 0;
}

/* Finds the parts of the current segment of a token; returns a rank whose part lacks, or -1. */
static int peek_parts(const struct epx_direct *direct, const int32_t *ranks, int num,
                      const char *parts[])
{
    for (int i = 0; i < num; i++) {
        parts[i] = epx_ring_peek(direct, ranks[i]);
        if (!parts[i])
            return ranks[i];
    }
    return -1;
}

static void take_weights(const struct epx_direct *direct, int32_t token)
{
    const struct epx_plan *plan = direct->plan;
    int64_t first = (int64_t)token * plan->shape.top_k;

    for (int k = 0; k < plan->shape.top_k; k++)
        if (plan->pair_ranks[first + k] >= 0)
            direct->home.weights[first + k] = plan->pair_weights[first + k];
}

static void step_token(struct epx_direct *direct)
{
    struct epx_cursor cursor = {direct->token, direct->token_segment};

    if (direct->home.weighted && direct->home.weights && direct->token_segment == 0)
        take_weights(direct, (int32_t)direct->token);
    epx_cursor_step(&cursor, direct->cut);
    direct->token = cursor.row;
    direct->token_segment = cursor.segment;
}

/* Sums the rows of the next tokens, as far as they have come; *lacking is a rank whose rows lack,
 * or -1. */
static int sum_tokens(struct epx_direct *direct, int *lacking)
{
    const struct epx_plan *plan = direct->plan;
    const char *parts[EPX_MAX_TOP_K];
    int64_t summed = 0;

    *lacking = -1;
    while (direct->token < plan->num_tokens && summed < EPX_DIRECT_STRIDE) {
        const int32_t *ranks = plan->token_rank + plan->token_offset[direct->token];
        int num = (int)(plan->token_offset[direct->token + 1] - plan->token_offset[direct->token]);

        *lacking = peek_parts(direct, ranks, num, parts);
        if (*lacking >= 0)
            break;
        epx_sum_token_rows(plan, &direct->home, (int32_t)direct->token, direct->token_segment,
                           (struct epx_token_parts){parts, ranks, num});
        for (int i = 0; i < num; i++)
            epx_ring_pop(direct, ranks[i]);
        summed += direct->slot_bytes * (num + 1);
        step_token(direct);
    }
    for (int r = 0; r < direct->comm->size && summed; r++)
        epx_ring_release(direct, r);
    return summed > 0;
}

static int move(struct epx_direct *direct, struct epx_request *request, int *moved)
{
    int lacking;

    request->waiting_for = -1;
    request->complete = 1;
    for (int r = 0; r < direct->comm->size; r++) {
        *moved |= push_sums(direct, r);
        if (direct->to[r].row < direct->plan->view.rank_counts[r]) {
            request->complete = 0;
            request->waiting_for = r;
        }
    }
    *moved |= sum_tokens(direct, &lacking);
    if (lacking >= 0)
        request->waiting_for = lacking;
    request->complete &= direct->token == direct->plan->num_tokens;
    return EPX_SUCCESS;
}

int epx_combine_direct(struct epx_request *request, int *moved)
{
    struct epx_direct *direct = epx_direct_of(request);
    int weighted;

    if (request->half == EPX_HALF_WEIGHTS)
        return epx_combine_weights(request, moved);
    if (request->phase == EPX_PHASE_VERB)
        return move(direct, request, moved);
    EPX_TRY(epx_direct_handshake(request, &weighted, moved));
    if (*moved && !epx_combine_splits(request, &weighted))
        begin(direct, request, weighted);
    return EPX_SUCCESS;
}
