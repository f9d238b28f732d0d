/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_plan.c - the host kernels that make a plan, for several ranks in one process, against
 * the reference: what the view shows, and the lists of rows that travel.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/hier/hier.h"
#include "core/route.h"
#include "kernels/host/host_kernels.h"
#include "kernels/node_rows.h"
#include "support/reference.h"
#include "support/suite.h"

enum { MOST_RANKS = 5, GUARD = 7 };

struct shape {
    int ranks, experts, top_k, max_tokens, alignment;
    EPX_Layout layout;
    EPX_Overflow overflow;
    int percent; /* of the capacity needed; 0 = room for all */
    int index_bits;
    int rows_per_expert;
    int node[MOST_RANKS];
};

static const struct shape shapes[] = {
    {4, 9, 3, 11, 4, EPX_EXPERT_MAJOR, EPX_OVERFLOW_ERROR, 0, 64, 0, {0, 1, 0, 1}},
    {4, 9, 3, 11, 1, EPX_RANK_MAJOR, EPX_OVERFLOW_ERROR, 0, 32, 0, {0, 1, 0, 1}},
    {4, 9, 3, 11, 8, EPX_EXPERT_MAJOR, EPX_OVERFLOW_DROP, 60, 32, 0, {0, 1, 0, 1}},
    {4, 9, 3, 11, 1, EPX_RANK_MAJOR, EPX_OVERFLOW_DROP, 60, 64, 0, {0, 1, 1, 0}},
    {5, 3, 4, 6, 2, EPX_EXPERT_MAJOR, EPX_OVERFLOW_DROP, 30, 64, 0, {0, 1, 2, 1, 0}},
    {5, 3, 4, 6, 1, EPX_RANK_MAJOR, EPX_OVERFLOW_ERROR, 0, 64, 0, {0, 0, 1, 2, 1}},
    {1, 4, 2, 5, 16, EPX_EXPERT_MAJOR, EPX_OVERFLOW_ERROR, 0, 32, 0, {0}},
    {3, 2, 64, 3, 1, EPX_EXPERT_MAJOR, EPX_OVERFLOW_ERROR, 0, 64, 0, {0, 1, 0}},
    {4, 9, 3, 11, 4, EPX_EXPERT_MAJOR, EPX_OVERFLOW_ERROR, 50, 64, 0, {0, 1, 0, 1}},
    {4, 9, 3, 11, 1, EPX_RANK_MAJOR, EPX_OVERFLOW_ERROR, 50, 64, 0, {0, 1, 0, 1}},
    {4, 9, 3, 11, 1, EPX_EXPERT_SLAB, EPX_OVERFLOW_ERROR, 0, 64, 132, {0, 1, 0, 1}},
    {4, 9, 3, 11, 1, EPX_EXPERT_SLAB, EPX_OVERFLOW_ERROR, 50, 32, 9, {0, 1, 0, 1}},
    {4, 9, 3, 11, 1, EPX_EXPERT_SLAB, EPX_OVERFLOW_DROP, 50, 64, 7, {0, 1, 1, 0}},
    {5, 3, 4, 6, 1, EPX_EXPERT_SLAB, EPX_OVERFLOW_DROP, 10, 64, 1, {0, 1, 2, 1, 0}},
};

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]), SEEDS = 20 };

static struct epx_plan plans[MOST_RANKS];
static int tokens[MOST_RANKS];
static int64_t *ids[MOST_RANKS], capacities[MOST_RANKS];
static struct ref *ref;

/* Memory filled with garbage, freed all at once. */
static void *blocks[2000];
static int num_blocks;

static void *take(int64_t n, size_t element_bytes)
{
    size_t bytes = (size_t)n * element_bytes + GUARD * sizeof(int64_t);

    ck_assert_int_lt(num_blocks, 2000);
    blocks[num_blocks] = malloc(bytes);
    ck_assert_ptr_nonnull(blocks[num_blocks]);
    memset(blocks[num_blocks], 0x6d, bytes);
    return blocks[num_blocks++];
}

static void give_back(void)
{
    while (num_blocks)
        free(blocks[--num_blocks]);
    ref_free(ref);
}

static int64_t pick_id(const struct shape *s, uint64_t seed, int rank, int pair)
{
    int kind = data_below(seed, 31, (uint64_t)(rank * 1000 + pair), 12);

    if (kind == 0)
        return -1;
    if (kind == 1 && seed % 3 == 0)
        return s->experts + data_below(seed, 32, (uint64_t)pair, 3);
    if (kind == 2 && pair % s->top_k)
        return ids[rank][pair - 1];
    return data_below(seed, 33, (uint64_t)(rank * 1000 + pair), s->experts);
}

static void make_input(const struct shape *s, uint64_t seed)
{
    for (int r = 0; r < s->ranks; r++) {
        tokens[r] = data_below(seed, 30, (uint64_t)r, 5)
                        ? data_below(seed, 34, (uint64_t)r, s->max_tokens + 1)
                        : s->max_tokens;
        ids[r] = take((int64_t)s->max_tokens * s->top_k, sizeof(int64_t));
        for (int p = 0; p < tokens[r] * s->top_k; p++)
            ids[r][p] = pick_id(s, seed, r, p);
    }
}

static void make_reference(const struct shape *s)
{
    struct ref_input in = {
        .ranks = s->ranks,
        .experts = s->experts,
        .top_k = s->top_k,
        .max_tokens = s->max_tokens,
        .alignment = s->alignment,
        .layout = s->layout,
        .overflow = s->overflow,
        .recv_capacity = capacities,
        .rows_per_expert = s->rows_per_expert,
        .tokens = tokens,
        .ids = ids,
    };

    memset(capacities, 0, sizeof(capacities));
    ref = ref_create(&in);
    if (!s->percent || s->rows_per_expert)
        return;
    for (int r = 0; r < s->ranks; r++)
        capacities[r] = ref->rank[r].required_rows * s->percent / 100 + 1;
    ref_free(ref);
    ref = ref_create(&in);
}

static void fix_plan(struct epx_plan *p, const struct shape *s, int rank)
{
    memset(p, 0, sizeof(*p));
    p->rank = rank;
    p->num_ranks = s->ranks;
    p->shape.num_experts = s->experts;
    p->shape.top_k = s->top_k;
    p->shape.max_tokens = s->max_tokens;
    p->shape.first_expert = ref->rank[rank].first_expert;
    p->shape.num_local = ref->rank[rank].num_experts;
    p->shape.alignment = s->alignment;
    p->shape.index_bits = s->index_bits;
    p->shape.rank_major = s->layout == EPX_RANK_MAJOR;
    p->shape.drops = s->overflow == EPX_OVERFLOW_DROP;
    p->shape.rows_per_expert = s->rows_per_expert;
    p->count_shape.num_experts = s->experts;
    p->count_shape.num_ranks = s->ranks;
    p->record_shape = epx_record_shape(s->top_k, p->shape.rank_major);
    p->num_tokens = tokens[rank];
}

static void take_home(struct epx_plan *p)
{
    int64_t pairs = (int64_t)p->shape.max_tokens * p->shape.top_k;
    int64_t rows = (int64_t)p->shape.max_tokens *
                   (p->shape.top_k < p->num_ranks ? p->shape.top_k : p->num_ranks);

    p->owner = take(p->shape.num_experts, sizeof(*p->owner));
    p->first_expert = take(p->num_ranks + 1, sizeof(*p->first_expert));
    p->rank_order = take(p->num_ranks, sizeof(*p->rank_order));
    p->capacities = take(p->num_ranks, sizeof(*p->capacities));
    p->pair_experts = take(pairs, sizeof(*p->pair_experts));
    p->pair_ranks = take(pairs, sizeof(*p->pair_ranks));
    p->send_offset = take(p->num_ranks + 1, sizeof(*p->send_offset));
    p->send_rows = take(p->num_ranks, sizeof(*p->send_rows));
    p->send_token = take(rows, sizeof(*p->send_token));
    p->send_slot = take(rows, sizeof(*p->send_slot));
    p->token_offset = take(p->shape.max_tokens + 1, sizeof(*p->token_offset));
    p->token_rank = take(rows, sizeof(*p->token_rank));
    p->token_slot = take(rows, sizeof(*p->token_slot));
    p->token_row = take(rows, sizeof(*p->token_row));
    p->next_slot = take(p->shape.num_experts, sizeof(*p->next_slot));
    p->next_row = take(p->num_ranks, sizeof(*p->next_row));
    p->last_token = take(p->num_ranks, sizeof(*p->last_token));
    p->listed_rows = take(p->num_ranks, sizeof(*p->listed_rows));
    p->open_records = take(p->num_ranks, sizeof(*p->open_records));
    p->token_rows = take(p->shape.max_tokens, sizeof(*p->token_rows));
    p->record_to = take(p->num_ranks, sizeof(*p->record_to));
    p->view.slots = take(pairs, sizeof(*p->view.slots));
}

static void take_expert(struct epx_plan *p, int64_t capacity)
{
    p->matrix =
        take((int64_t)p->num_ranks * (int64_t)epx_count_words(p->count_shape), sizeof(*p->matrix));
    p->records =
        take((int64_t)p->num_ranks * p->shape.max_tokens, epx_record_bytes(p->record_shape));
    p->recv_rows = take(p->num_ranks, sizeof(*p->recv_rows));
    p->view.expert_counts = take(p->shape.num_local, sizeof(*p->view.expert_counts));
    p->view.expert_offsets = take(p->shape.num_local + 1, sizeof(*p->view.expert_offsets));
    p->view.rank_counts = take(p->num_ranks, sizeof(*p->view.rank_counts));
    p->view.expert_ends = take(p->shape.num_local, sizeof(*p->view.expert_ends));
    p->view.group_sizes = take(p->shape.num_local, sizeof(*p->view.group_sizes));
    p->view.overflow = take(1, sizeof(*p->view.overflow));
    p->view.row_expert_ids = take(capacity * p->shape.top_k, sizeof(*p->view.row_expert_ids));
    p->view.row_tokens = take(capacity, sizeof(*p->view.row_tokens));
    p->view.row_ranks = take(capacity, sizeof(*p->view.row_ranks));
    p->view.row_choices = take(capacity, sizeof(*p->view.row_choices));
    p->view.num_rows = take(1, sizeof(*p->view.num_rows));
    p->view.required_rows = take(1, sizeof(*p->view.required_rows));
    p->view.arrived_rows =
        p->shape.rows_per_expert ? take(1, sizeof(*p->view.arrived_rows)) : p->view.num_rows;
}

static void make_plan(struct epx_plan *p, const struct shape *s, int rank)
{
    int placed = 0;

    fix_plan(p, s, rank);
    take_home(p);
    take_expert(p, ref->rank[rank].capacity);
    for (int e = 0; e < s->experts; e++)
        p->owner[e] = ref_owner(&ref->in, e);
    for (int r = 0; r <= s->ranks; r++)
        p->first_expert[r] = (int32_t)((int64_t)r * s->experts / s->ranks);
    for (int node = 0; node < MOST_RANKS; node++)
        for (int r = 0; r < s->ranks; r++)
            if (s->node[r] == node)
                p->rank_order[placed++] = r;
    for (int r = 0; r < s->ranks; r++)
        p->capacities[r] = -1; /* the matrix tells them */
}

/* Counts the pairs of one rank straight into everybody's matrix. */
static void count(struct epx_plan *p, const struct shape *s)
{
    int64_t pairs = (int64_t)tokens[p->rank] * s->top_k;
    int32_t *narrow = take(pairs, sizeof(*narrow));
    int32_t *counts = take((int64_t)epx_count_words(p->count_shape), sizeof(*counts));
    struct epx_count_pairs args = {0};

    for (int64_t i = 0; i < pairs; i++)
        narrow[i] = (int32_t)ids[p->rank][i];
    args.ids = s->index_bits == 32 ? (void *)narrow : (void *)ids[p->rank];
    args.owner = p->owner;
    args.num_tokens = tokens[p->rank];
    args.top_k = s->top_k;
    args.index_bits = s->index_bits;
    args.shape = p->count_shape;
    args.experts = p->pair_experts;
    args.counts = counts;
    args.capacity = (int32_t)ref->rank[p->rank].capacity;
    args.last_token = p->last_token;
    args.bad = &p->bad;
    epx_count_pairs_host(&args);
    for (int d = 0; d < s->ranks; d++)
        memcpy(epx_plan_counts(&plans[d], p->rank), counts,
               epx_count_words(p->count_shape) * sizeof(*counts));
}

static void same32(const char *what, const int32_t *got, const int32_t *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i])
            ck_abort_msg("%s[%lld] is %d, not %d", what, (long long)i, got[i], want[i]);
}

static void check_short_rank(const struct epx_plan *p)
{
    int first = 0;

    while (first < p->num_ranks && ref->rank[first].required_rows <= ref->rank[first].capacity)
        first++;
    if (first == p->num_ranks) {
        ck_assert_int_eq(p->short_rank, -1);
        return;
    }
    ck_assert_int_eq(p->short_rank, first);
    ck_assert_int_eq(p->short_rows, ref->rank[first].required_rows);
    ck_assert_int_eq(p->short_expert, ref->short_expert);
    ck_assert(p->short_expert < 0 || p->short_pairs == ref->short_pairs);
}

static void check_counts(const struct epx_plan *p)
{
    const struct ref_rank *at = &ref->rank[p->rank];

    if (!p->shape.rank_major || !p->shape.drops)
        same32("expert_counts", p->view.expert_counts, at->expert_counts, p->shape.num_local);
    same32("rank_counts", p->view.rank_counts, at->rank_counts, p->num_ranks);
    ck_assert_int_eq(*p->view.required_rows, at->required_rows);
    ck_assert_int_eq(p->bad.pairs, at->bad_ids);
    check_short_rank(p);
    if (!at->bad_ids)
        return;
    ck_assert_int_eq(p->bad.token, at->bad_token);
    ck_assert_int_eq(p->bad.choice, at->bad_choice);
    ck_assert_int_eq(p->bad.value, ids[p->rank][at->bad_token * p->shape.top_k + at->bad_choice]);
}

static void route(const struct shape *s)
{
    for (int r = 0; r < s->ranks; r++)
        make_plan(&plans[r], s, r);
    for (int r = 0; r < s->ranks; r++)
        count(&plans[r], s);
    for (int r = 0; r < s->ranks; r++)
        epx_offset_slabs_host(&plans[r]);
    for (int r = 0; r < s->ranks; r++)
        check_counts(&plans[r]);
    for (int r = 0; !ref->truncated && r < s->ranks; r++) {
        for (int d = 0; d < s->ranks; d++)
            plans[r].record_to[d] = epx_plan_record(&plans[d], r, 0);
        epx_assign_slots_host(&plans[r]);
    }
    for (int r = 0; !ref->truncated && r < s->ranks; r++)
        epx_index_rows_host(&plans[r]);
}

static void check_view(const struct epx_plan *p)
{
    const struct ref_rank *at = &ref->rank[p->rank];

    ck_assert_int_eq(*p->view.num_rows, at->num_rows);
    ck_assert_int_eq(*p->view.arrived_rows, at->status_rows);
    same32("expert_counts", p->view.expert_counts, at->expert_counts, p->shape.num_local);
    same32("slots", p->view.slots, at->slots, (int64_t)p->shape.max_tokens * p->shape.top_k);
    same32("row_tokens", p->view.row_tokens, at->row_tokens, at->num_rows);
    same32("row_ranks", p->view.row_ranks, at->row_ranks, at->num_rows);
    if (p->shape.rank_major)
        same32("row_expert_ids", p->view.row_expert_ids, at->row_expert_ids,
               at->num_rows * p->shape.top_k);
    else
        same32("row_choices", p->view.row_choices, at->row_choices, at->num_rows);
    for (int e = 0; !p->shape.rank_major && e <= p->shape.num_local; e++)
        ck_assert_int_eq(p->view.expert_offsets[e], at->expert_offsets[e]);
}

/* The rank of the pair, if the pair was kept. */
static int kept_on(const struct epx_plan *p, int64_t pair)
{
    return ref->rank[p->rank].slots[pair] < 0 ? -1 : ref_owner(&ref->in, ids[p->rank][pair]);
}

static int32_t first_slot(const struct epx_plan *p, int token, int rank)
{
    for (int64_t pair = (int64_t)token * p->shape.top_k;
         pair < (int64_t)(token + 1) * p->shape.top_k; pair++)
        if (kept_on(p, pair) == rank)
            return ref->rank[p->rank].slots[pair];
    return -1;
}

static void check_send_list(const struct epx_plan *p, int rank)
{
    int64_t at = p->send_offset[rank];
    int rows = 0;

    for (int t = 0; t < p->num_tokens; t++) {
        int32_t slot = first_slot(p, t, rank);

        if (slot < 0)
            continue;
        ck_assert_int_eq(p->send_token[at + rows], t);
        ck_assert_int_eq(p->send_slot[at + rows++], slot);
    }
    ck_assert_int_eq(p->send_rows[rank], rows);
    ck_assert_int_eq(plans[rank].recv_rows[p->rank], rows);
    ck_assert_int_ge(p->send_offset[rank + 1] - at, rows);
}

/* Checks that a token's ranks of one node stand in one run, nodes and ranks within them
 * ascending. */
static void check_token_list(const struct epx_plan *p, const struct shape *s)
{
    int64_t at = 0;

    for (int t = 0; t < p->num_tokens; t++) {
        ck_assert_int_eq(p->token_offset[t], at);
        for (int key = 0; key < MOST_RANKS * s->ranks; key++) {
            int rank = key % s->ranks;
            int32_t slot = s->node[rank] == key / s->ranks ? first_slot(p, t, rank) : -1;

            if (slot < 0)
                continue;
            ck_assert_int_eq(p->token_rank[at], rank);
            ck_assert_int_eq(p->token_slot[at], slot);
            ck_assert_int_eq(p->send_token[p->send_offset[rank] + p->token_row[at]], t);
            at++;
        }
    }
    ck_assert_int_eq(p->token_offset[p->num_tokens], at);
}

static void check_lists(const struct epx_plan *p, const struct shape *s)
{
    for (int64_t pair = 0; pair < (int64_t)p->num_tokens * p->shape.top_k; pair++)
        ck_assert_int_eq(p->pair_ranks[pair], kept_on(p, pair));
    for (int d = 0; d < p->num_ranks; d++)
        check_send_list(p, d);
    check_token_list(p, s);
}

/* Checks that a record has the kept pairs of its unique row in choice order. */
static void check_record(const struct epx_plan *p, int source, int32_t *record)
{
    const struct epx_plan *home = &plans[source];
    const uint8_t *choices = epx_record_choices(record, p->record_shape);
    int32_t token = record[EPX_RECORD_TOKEN];
    int n = 0;

    for (int k = 0; k < p->shape.top_k; k++) {
        int64_t pair = (int64_t)token * p->shape.top_k + k;

        if (kept_on(home, pair) != p->rank)
            continue;
        ck_assert_int_eq(choices[n], k);
        if (p->shape.rank_major)
            ck_assert_int_eq(epx_record_experts(record, p->record_shape)[n],
                             ids[source][pair] - p->shape.first_expert);
        if (!p->shape.rank_major || n == 0)
            ck_assert_int_eq(epx_record_slots(record)[n], ref->rank[source].slots[pair]);
        n++;
    }
    ck_assert_int_eq(record[EPX_RECORD_PAIRS], n);
    ck_assert_int_eq(record[EPX_RECORD_SLOTS], p->shape.rank_major ? n > 0 : n);
}

static void check_records(const struct epx_plan *p)
{
    for (int source = 0; source < p->num_ranks; source++)
        for (int32_t u = 0, last = -1; u < p->view.rank_counts[source]; u++) {
            int32_t *record = epx_plan_record(p, source, u);

            ck_assert_int_gt(record[EPX_RECORD_TOKEN], last);
            last = record[EPX_RECORD_TOKEN];
            check_record(p, source, record);
        }
}

/* The part of a plan that lists rows by node, as a route of hierarchical algorithms makes it. */
static void list_by_node(struct epx_plan *p, const struct shape *s)
{
    int node[MOST_RANKS];
    struct epx_comm comm = {.rank = p->rank, .size = s->ranks, .node = node};

    for (int r = 0; r < s->ranks; r++) {
        node[r] = s->node[r];
        comm.num_nodes = node[r] >= comm.num_nodes ? node[r] + 1 : comm.num_nodes;
    }
    ck_assert_int_eq(epx_node_plan_create(&comm, p), EPX_SUCCESS);
    p->by_node->nodes.node = s->node;
    epx_list_node_rows_host(p);
}

static int place_in_node(const struct shape *s, int rank)
{
    int place = 0;

    for (int r = 0; r < rank; r++)
        place += s->node[r] == s->node[rank];
    return place;
}

/* Checks that one rank of each node serves a home, and no rank more homes than it must. */
static void check_relays(const struct epx_plan *p, const struct shape *s)
{
    int served = 0, most = 0, size[MOST_RANKS] = {0};

    for (int r = 0; r < s->ranks; r++)
        size[s->node[r]]++;
    for (int home = 0; home < s->ranks; home++) {
        int relay = epx_relay(&p->by_node->nodes, home, s->node[p->rank]);
        int mine = relay == p->rank && home != p->rank;

        ck_assert_int_eq(s->node[relay], s->node[p->rank]);
        if (s->node[home] == s->node[p->rank])
            ck_assert_int_eq(relay, home);
        else
            ck_assert_int_eq(place_in_node(s, relay),
                             place_in_node(s, home) % size[s->node[p->rank]]);
        ck_assert_int_eq(p->by_node->served[home], mine ? served : -1);
        served += mine;
    }
    for (int node = 0; node < MOST_RANKS; node++)
        if (size[node] && node != s->node[p->rank])
            most += (size[node] + size[s->node[p->rank]] - 1) / size[s->node[p->rank]];
    ck_assert_int_le(served, most);
    ck_assert_int_ge(p->by_node->rows_per_token, served + 1);
    ck_assert_int_ge(p->by_node->rows_per_token, p->by_node->nodes.num_nodes - 1);
}

static int kept_on_node(const struct epx_plan *p, const struct shape *s, int token, int node)
{
    int kept = 0;

    for (int k = 0; k < p->shape.top_k; k++) {
        int rank = kept_on(p, (int64_t)token * p->shape.top_k + k);

        kept += rank >= 0 && s->node[rank] == node;
    }
    return kept;
}

static void check_entry(const struct epx_plan *p, const struct shape *s, int node, int row)
{
    int32_t entry[1 + EPX_MAX_TOP_K / 2];
    int token = p->by_node->row_token[node * p->shape.max_tokens + row];

    epx_entry_write(p, node, row, entry);
    ck_assert_int_eq(entry[0], token);
    for (int k = 0; k < p->shape.top_k; k++) {
        int rank = kept_on(p, (int64_t)token * p->shape.top_k + k);
        int there = rank >= 0 && s->node[rank] == node;

        ck_assert_int_eq(epx_entry_ranks(entry)[k], there ? place_in_node(s, rank) : EPX_ELSEWHERE);
    }
}

/* Checks that a node has a row for every token with a kept pair there, as the list by token has
 * it. */
static void check_node_rows(const struct epx_plan *p, const struct shape *s, int node)
{
    int rows = 0;

    for (int t = 0; t < p->num_tokens; t++) {
        if (!kept_on_node(p, s, t, node))
            continue;
        ck_assert_int_eq(p->by_node->row_token[node * p->shape.max_tokens + rows], t);
        for (int64_t i = p->token_offset[t]; i < p->token_offset[t + 1]; i++)
            if (s->node[p->token_rank[i]] == node)
                ck_assert_int_eq(p->by_node->token_row[i], rows);
        check_entry(p, s, node, rows++);
    }
    ck_assert_int_eq(p->by_node->rows[node], rows);
}

/* Checks that each record is sent with the node row of its token. */
static void check_record_rows(const struct epx_plan *p, const struct shape *s)
{
    for (int d = 0; d < s->ranks; d++)
        for (int32_t u = 0; u < epx_plan_unique(p, p->rank, d); u++) {
            const int32_t *record = epx_plan_record(&plans[d], p->rank, u);
            int32_t row = p->by_node->send_row[p->send_offset[d] + u];

            ck_assert_int_eq(row >= 0, record[EPX_RECORD_SLOTS] > 0);
            if (row >= 0)
                ck_assert_int_eq(p->by_node->row_token[s->node[d] * p->shape.max_tokens + row],
                                 record[EPX_RECORD_TOKEN]);
        }
}

START_TEST(rows_by_node_match_the_reference)
{
    const struct shape *s = &shapes[_i];

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        make_input(s, seed);
        make_reference(s);
        route(s);
        for (int r = 0; !ref->truncated && r < s->ranks; r++) {
            list_by_node(&plans[r], s);
            check_relays(&plans[r], s);
            for (int node = 0; node < plans[r].by_node->nodes.num_nodes; node++)
                check_node_rows(&plans[r], s, node);
            check_record_rows(&plans[r], s);
            epx_arrays_free(&plans[r].arrays);
        }
        give_back();
    }
}
END_TEST

START_TEST(plans_match_the_reference)
{
    const struct shape *s = &shapes[_i];
    int drops = 0, truncated = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        make_input(s, seed);
        make_reference(s);
        route(s);
        for (int r = 0; r < s->ranks; r++) {
            check_view(&plans[r]);
            if (ref->truncated)
                continue;
            ck_assert_int_eq(plans[r].dropped, ref->rank[r].dropped_rows);
            check_lists(&plans[r], s);
            check_records(&plans[r]);
            drops += ref->rank[r].dropped_rows > 0;
        }
        truncated += ref->truncated;
        give_back();
    }
    ck_assert_int_eq(drops > 0, s->percent && s->overflow == EPX_OVERFLOW_DROP);
    ck_assert_int_eq(truncated > 0, s->percent && s->overflow == EPX_OVERFLOW_ERROR);
}
END_TEST

static int follows(const struct epx_comm *comm, int32_t rank, int32_t before)
{
    if (comm->node[rank] != comm->node[before])
        return comm->node[rank] > comm->node[before];
    return rank > before;
}

/* Even ranks on one node, odd ones on the other. */
START_TEST(a_route_orders_ranks_by_node)
{
    EPX_Comm comm = suite_comm("epx_transport", "mpi", NULL);
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route made = EPX_ROUTE_NULL;

    for (int r = 0; r < suite_size; r++)
        comm->node[r] = r % 2;
    comm->num_nodes = suite_size > 1 ? 2 : 1;
    attr.num_experts = attr.top_k = attr.max_tokens = 1;
    EXPECT_CODE(EPX_Route_create(&attr, comm, &made), EPX_SUCCESS);
    SETTLE();
    EXPECT(made->plan->rank_order[0] == 0, "rank %d is first", made->plan->rank_order[0]);
    for (int i = 1; i < suite_size; i++) {
        int32_t rank = made->plan->rank_order[i], before = made->plan->rank_order[i - 1];

        EXPECT(rank >= 0 && rank < suite_size && follows(comm, rank, before),
               "rank %d comes after %d", rank, before);
    }
    EXPECT_CODE(EPX_Route_free(&made), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("plan");
    TCase *tcase = tcase_create("plan");

    tcase_add_loop_test(tcase, plans_match_the_reference, 0, SHAPES);
    tcase_add_loop_test(tcase, rows_by_node_match_the_reference, 0, SHAPES);
    tcase_add_test(tcase, a_route_orders_ranks_by_node);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
