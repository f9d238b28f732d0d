/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * assign_slots_host.c - gives each pair its slot, writes a record for each unique row, and
 * lists the rows that travel by rank and by token.
 * Work: max_tokens * top_k + rows. Reads pair_experts, owner, next_slot or next_row (and advances
 * them);
 * writes slots, pair_ranks, the records and the send and token lists. Order: (token, choice).
 */
#include "kernels.h"

static void begin(struct epx_plan *plan)
{
    const int32_t *rows = epx_unique_rows(epx_plan_counts(plan, plan->rank), plan->count_shape);

    plan->dropped = 0;
    plan->send_offset[0] = 0;
    for (int32_t d = 0; d < plan->num_ranks; d++) {
        plan->send_offset[d + 1] = plan->send_offset[d] + rows[d];
        plan->send_rows[d] = 0;
        plan->last_token[d] = -1;
        plan->open_record[d] = 0;
    }
    memset(plan->token_rows, 0, (size_t)plan->num_tokens * sizeof(*plan->token_rows));
}

/* The record of (token, rank), begun with the token's first pair there. */
static int32_t *record_of(struct epx_plan *plan, int32_t token, int32_t rank)
{
    int32_t *record;

    if (plan->last_token[rank] != token) {
        plan->last_token[rank] = token;
        record = epx_record_at(plan->record_to[rank], plan->record_shape,
                               plan->open_record[rank]++);
        record[EPX_RECORD_TOKEN] = token;
        record[EPX_RECORD_SLOTS] = 0;
        record[EPX_RECORD_PAIRS] = 0;
        if (plan->rank_major && ++plan->next_row[rank] > plan->capacities[rank])
            plan->dropped++;
        return record;
    }
    return epx_record_at(plan->record_to[rank], plan->record_shape, plan->open_record[rank] - 1);
}

static void list_row(struct epx_plan *plan, int32_t token, int32_t rank, int32_t slot)
{
    int64_t at = plan->send_offset[rank] + plan->send_rows[rank]++;

    plan->send_token[at] = token;
    plan->send_slot[at] = slot;
    plan->token_rows[token]++;
}

static int64_t take_slot(struct epx_plan *plan, int32_t expert, int32_t rank)
{
    if (plan->rank_major)
        return plan->next_row[rank] - 1;
    return plan->next_slot[expert]++;
}

/* Appends a pair to its record; returns its slot, or -1 if there is no room. */
static int32_t add_pair(struct epx_plan *plan, int32_t token, int32_t choice, int32_t expert)
{
    int32_t rank = plan->owner[expert];
    int32_t *record = record_of(plan, token, rank);
    int64_t slot = take_slot(plan, expert, rank);
    int32_t pair = record[EPX_RECORD_PAIRS];

    if (slot >= plan->capacities[rank]) {
        plan->dropped += !plan->rank_major;
        return -1;
    }
    if (pair == 0)
        list_row(plan, token, rank, (int32_t)slot);
    if (!plan->rank_major || pair == 0)
        epx_record_slots(record)[record[EPX_RECORD_SLOTS]++] = (int32_t)slot;
    if (plan->rank_major)
        epx_record_experts(record, plan->record_shape)[pair] =
            expert - epx_first_expert(rank, plan->num_experts, plan->num_ranks);
    epx_record_choices(record, plan->record_shape)[pair] = (uint8_t)choice;
    record[EPX_RECORD_PAIRS] = pair + 1;
    return (int32_t)slot;
}

/* The lists by rank, each in token order, read in the order of sums give the lists by token. */
static void list_by_token(struct epx_plan *plan)
{
    plan->token_offset[0] = 0;
    for (int32_t t = 0; t < plan->num_tokens; t++) {
        plan->token_offset[t + 1] = plan->token_offset[t] + plan->token_rows[t];
        plan->token_rows[t] = 0;
    }
    for (int32_t r = 0; r < plan->num_ranks; r++)
        for (int32_t i = 0, d = plan->rank_order[r]; i < plan->send_rows[d]; i++) {
            int32_t token = plan->send_token[plan->send_offset[d] + i];
            int64_t at = plan->token_offset[token] + plan->token_rows[token]++;

            plan->token_rank[at] = d;
            plan->token_row[at] = i;
            plan->token_slot[at] = plan->send_slot[plan->send_offset[d] + i];
        }
}

int epx_assign_slots_host(struct epx_plan *plan, EPX_Stream stream)
{
    int64_t pairs = (int64_t)plan->num_tokens * plan->top_k;
    int64_t all = (int64_t)plan->max_tokens * plan->top_k;

    (void)stream;
    begin(plan);
    for (int64_t p = 0; p < pairs; p++) {
        int32_t expert = plan->pair_experts[p];

        plan->slots[p] = expert >= 0 ? add_pair(plan, (int32_t)(p / plan->top_k),
                                                (int32_t)(p % plan->top_k), expert)
                                     : -1;
        plan->pair_ranks[p] = plan->slots[p] >= 0 ? plan->owner[expert] : -1;
    }
    memset(plan->slots + pairs, 0xff, (size_t)(all - pairs) * sizeof(*plan->slots));
    list_by_token(plan);
    return EPX_SUCCESS;
}
