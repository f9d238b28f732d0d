/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * assign_slots_host.c - gives each pair its slot, writes a record for each unique row, and
 * lists the rows that travel by rank and by token.
 * Work: max_tokens * top_k + rows. Reads pair_experts, owner, next_slot or next_row (and advances
 * them); writes slots, pair_ranks, the records and the send and token lists. Order:
 * (token, choice).
 */
#include "kernels/host/host_kernels.h"
#include "kernels/slabs.h"

static void begin(struct epx_plan *plan)
{
    const int32_t *rows = epx_unique_rows(epx_plan_counts(plan, plan->rank), plan->count_shape);

    plan->dropped = 0;
    plan->send_offset[0] = 0;
    for (int32_t d = 0; d < plan->num_ranks; d++) {
        plan->send_offset[d + 1] = plan->send_offset[d] + rows[d];
        plan->send_rows[d] = 0;
        plan->open_records[d].next = plan->record_to[d];
        plan->open_records[d].token = -1;
    }
    memset(plan->token_rows, 0, (size_t)plan->num_tokens * sizeof(*plan->token_rows));
}

/* Opens the record of (token, rank); it lies open until the rank's next one. */
static inline void open_record(const struct epx_plan *plan, struct epx_open_record *open,
                               int32_t token)
{
    open->record = open->next;
    open->next = epx_record_at(open->next, plan->record_shape, 1);
    open->token = token;
    open->pairs = 0;
    open->record[EPX_RECORD_TOKEN] = token;
    open->record[EPX_RECORD_SLOTS] = 0;
    open->record[EPX_RECORD_PAIRS] = 0;
}

static inline void list_row(const struct epx_plan *plan, int32_t token, int32_t rank, int64_t slot)
{
    int64_t at = plan->send_offset[rank] + plan->send_rows[rank]++;

    plan->send_token[at] = token;
    plan->send_slot[at] = (int32_t)slot;
    plan->token_rows[token]++;
}

/* Adds a pair to the open record; returns its place there. */
static inline int32_t add_pair(const struct epx_plan *plan, struct epx_open_record *open,
                               int32_t choice)
{
    int32_t pair = open->pairs++;

    open->record[EPX_RECORD_PAIRS] = pair + 1;
    epx_record_choices(open->record, plan->record_shape)[pair] = (uint8_t)choice;
    return pair;
}

/* By expert: every pair takes a slot. Returns it, or -1 if there is no room. */
static inline int32_t assign_pair(struct epx_plan *plan, int32_t token, int32_t choice,
                                  int32_t expert)
{
    int32_t rank = plan->owner[expert], pair;
    struct epx_open_record *open = &plan->open_records[rank];
    int64_t slot = plan->next_slot[expert]++, limit = plan->capacities[rank];

    if (open->token != token)
        open_record(plan, open, token);
    if (plan->shape.rows_per_expert) /* looking up first_expert takes time */
        limit = epx_slab_limit(&plan->shape, expert - plan->first_expert[rank], limit);
    if (slot >= limit) {
        plan->dropped++;
        return -1;
    }
    pair = add_pair(plan, open, choice);
    if (pair == 0)
        list_row(plan, token, rank, slot);
    open->record[EPX_RECORD_SLOTS] = pair + 1;
    epx_record_slots(open->record)[pair] = (int32_t)slot;
    return (int32_t)slot;
}

/* Rank-major: the pairs of a token for one rank share the slot that the first of them takes. */
static inline int32_t assign_row(struct epx_plan *plan, int32_t token, int32_t choice,
                                 int32_t expert)
{
    int32_t rank = plan->owner[expert], pair;
    struct epx_open_record *open = &plan->open_records[rank];

    if (open->token != token) {
        open_record(plan, open, token);
        open->slot = plan->next_row[rank]++;
        plan->dropped += open->slot >= plan->capacities[rank];
    }
    if (open->slot >= plan->capacities[rank])
        return -1;
    pair = add_pair(plan, open, choice);
    if (pair == 0)
        list_row(plan, token, rank, open->slot);
    open->record[EPX_RECORD_SLOTS] = 1;
    epx_record_slots(open->record)[0] = (int32_t)open->slot;
    epx_record_experts(open->record, plan->record_shape)[pair] = expert - plan->first_expert[rank];
    return (int32_t)open->slot;
}

static inline void assign_pairs(struct epx_plan *plan,
                                int32_t (*assign)(struct epx_plan *, int32_t, int32_t, int32_t))
{
    int64_t pair = 0;

    for (int32_t t = 0; t < plan->num_tokens; t++)
        for (int32_t k = 0; k < plan->shape.top_k; k++, pair++) {
            int32_t expert = plan->pair_experts[pair];
            int32_t slot = expert >= 0 ? assign(plan, t, k, expert) : -1;

            plan->view.slots[pair] = slot;
            plan->pair_ranks[pair] = slot >= 0 ? plan->owner[expert] : -1;
        }
}

/* Writes an entry of the list by token: the i-th row for a rank. */
static inline void list_entry(struct epx_plan *plan, int64_t at, int32_t rank, int32_t i)
{
    plan->token_rank[at] = rank;
    plan->token_row[at] = i;
    plan->token_slot[at] = plan->send_slot[plan->send_offset[rank] + i];
}

/* The lists by rank, each in token order, read in the order of sums give the lists by token. */
static void list_by_rank(struct epx_plan *plan)
{
    for (int32_t r = 0; r < plan->num_ranks; r++)
        for (int32_t i = 0, d = plan->rank_order[r]; i < plan->send_rows[d]; i++) {
            int32_t token = plan->send_token[plan->send_offset[d] + i];

            list_entry(plan, plan->token_offset[token] + plan->token_rows[token]++, d, i);
        }
}

static int lists_rank(const struct epx_plan *plan, int64_t first, int64_t end, int32_t rank)
{
    while (first < end && plan->token_rank[first] != rank)
        first++;
    return first < end;
}

/* Lists before `at`, from the last one on, the ranks of a node that have choices of a token up to
 * the k-th; returns where the first of them stands. */
static int64_t list_node(struct epx_plan *plan, const int32_t *ranks, int32_t k, int64_t at)
{
    const int32_t node = plan->node[ranks[k]];
    const int64_t end = at;

    for (; k >= 0; k--) {
        if (ranks[k] < 0 || plan->node[ranks[k]] != node || lists_rank(plan, at, end, ranks[k]))
            continue;
        list_entry(plan, --at, ranks[k], plan->listed_rows[ranks[k]]++);
    }
    return at;
}

/* The list of each token from its end: the node and the rank of the last choice stand last. */
static void list_by_choice(struct epx_plan *plan)
{
    memset(plan->listed_rows, 0, (size_t)plan->num_ranks * sizeof(*plan->listed_rows));
    for (int32_t t = 0; t < plan->num_tokens; t++) {
        const int32_t *ranks = plan->pair_ranks + (int64_t)t * plan->shape.top_k;
        const int64_t end = plan->token_offset[t + 1];
        int64_t at = end;

        for (int32_t k = plan->shape.top_k - 1; at > plan->token_offset[t]; k--)
            if (ranks[k] >= 0 && !lists_rank(plan, at, end, ranks[k]))
                at = list_node(plan, ranks, k, at);
    }
}

static void list_by_token(struct epx_plan *plan)
{
    plan->token_offset[0] = 0;
    for (int32_t t = 0; t < plan->num_tokens; t++) {
        plan->token_offset[t + 1] = plan->token_offset[t] + plan->token_rows[t];
        plan->token_rows[t] = 0;
    }
    if (plan->shape.by_choice)
        list_by_choice(plan);
    else
        list_by_rank(plan);
}

void epx_assign_slots_host(struct epx_plan *plan)
{
    int64_t pairs = (int64_t)plan->num_tokens * plan->shape.top_k;
    int64_t all = (int64_t)plan->shape.max_tokens * plan->shape.top_k;
    struct epx_plan copy; /* no store can alias a local copy */

    begin(plan);
    copy = *plan;
    if (plan->shape.rank_major)
        assign_pairs(&copy, assign_row);
    else
        assign_pairs(&copy, assign_pair);
    plan->dropped = copy.dropped;
    memset(plan->view.slots + pairs, 0xff, (size_t)(all - pairs) * sizeof(*plan->view.slots));
    list_by_token(plan);
}
