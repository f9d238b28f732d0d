/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * routing_hier.c - routing by messages where rows cross to a node once: an allgather of the counts,
 * an allgather of the numbers of node rows, then by alltoallv the records, each with its node row,
 * and behind them, to the relays, an entry for each node row. Every rank reads from the two
 * matrices how many exchanges the longest lists need.
 */
#include "coll/hier/hier.h"
#include "coll/routing.h"
#include "coll/verbs.h"

enum { AWAIT_COUNTS = EPX_PHASE_ROUTING, AWAIT_NODE_ROWS };

/* Part of a list that one round moves. */
struct items {
    int64_t first;
    int32_t num;
};

/* A record and the number of its node row. */
static int64_t record_bytes(const struct epx_plan *plan)
{
    return (int64_t)epx_record_bytes(plan->record_shape) + (int64_t)sizeof(int32_t);
}

static int64_t entry_bytes(const struct epx_plan *plan)
{
    return (int64_t)epx_entry_bytes(plan->shape.top_k);
}

/* Each of the two lists for a rank has half of its share of the stage. */
static int64_t per_round(const struct epx_staged *staged, int64_t item_bytes)
{
    return epx_staged_rows(staged, 2 * item_bytes);
}

static int64_t rounds_of(const struct epx_staged *staged, int64_t most, int64_t item_bytes)
{
    int64_t items = per_round(staged, item_bytes);

    return (most + items - 1) / items;
}

static struct items items_of_round(const struct epx_staged *staged, int64_t all, int64_t item_bytes)
{
    int64_t most = per_round(staged, item_bytes);
    struct items items = {.first = staged->round * most};
    int64_t rest = all - items.first;

    items.num = rest < 0 ? 0 : (int32_t)(rest < most ? rest : most);
    return items;
}

static int assign(struct epx_hier *hier, struct epx_request *request)
{
    const struct epx_staged *staged = hier->staged;
    struct epx_plan *plan = request->route->plan;

    EPX_TRY(epx_routing_assign_staged(request));
    epx_list_node_rows_host(plan);
    request->phase = AWAIT_NODE_ROWS;
    return staged->messages->allgather(staged->state, plan->by_node->rows, plan->by_node->matrix,
                                       plan->by_node->nodes.num_nodes *
                                           (int)sizeof(*plan->by_node->rows));
}

/* The longest list of entries between two ranks; rows for a home's own node need none. */
static int64_t most_entries(const struct epx_plan *plan)
{
    const struct epx_nodes *nodes = &plan->by_node->nodes;
    int64_t most = 0;

    for (int32_t s = 0; s < plan->num_ranks; s++)
        for (int32_t m = 0; m < nodes->num_nodes; m++) {
            int64_t rows = plan->by_node->matrix[(int64_t)s * nodes->num_nodes + m];

            if (m != nodes->node[s] && rows > most)
                most = rows;
        }
    return most;
}

static void plan_rounds(struct epx_hier *hier, struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;
    struct epx_staged *staged = hier->staged;
    int64_t records = rounds_of(staged, epx_routing_most_records(plan), record_bytes(plan));
    int64_t entries = rounds_of(staged, most_entries(plan), entry_bytes(plan));

    staged->round = -1;
    staged->num_rounds = records > entries ? records : entries;
    request->phase = EPX_PHASE_VERB;
}

static struct items records_to(const struct epx_staged *staged, const struct epx_plan *plan,
                               int32_t rank)
{
    return items_of_round(staged, epx_plan_unique(plan, plan->rank, rank), record_bytes(plan));
}

static struct items records_from(const struct epx_staged *staged, const struct epx_plan *plan,
                                 int32_t rank)
{
    return items_of_round(staged, plan->view.rank_counts[rank], record_bytes(plan));
}

static struct items entries_to(const struct epx_staged *staged, const struct epx_plan *plan,
                               int32_t rank)
{
    const struct epx_nodes *nodes = &plan->by_node->nodes;
    int32_t node = nodes->node[rank];
    int relays = node != nodes->own && epx_relay(nodes, plan->rank, node) == rank;

    return items_of_round(staged, relays ? plan->by_node->rows[node] : 0, entry_bytes(plan));
}

static struct items entries_from(const struct epx_staged *staged, const struct epx_plan *plan,
                                 int32_t rank)
{
    const struct epx_node_plan *by_node = plan->by_node;

    return items_of_round(staged, by_node->served[rank] >= 0 ? epx_served_rows(by_node, rank) : 0,
                          entry_bytes(plan));
}

static void pack_items(const struct epx_staged *staged, const struct epx_plan *plan, int32_t rank)
{
    struct items records = records_to(staged, plan, rank);
    struct items entries = entries_to(staged, plan, rank);
    const int32_t *rows = plan->by_node->send_row + plan->send_offset[rank] + records.first;
    size_t bytes = epx_record_bytes(plan->record_shape);
    char *to = staged->home_at[rank];

    for (int32_t i = 0; i < records.num; i++, to += record_bytes(plan)) {
        memcpy(to, epx_record_at(plan->record_to[rank], plan->record_shape, records.first + i),
               bytes);
        memcpy(to + bytes, &rows[i], sizeof(*rows));
    }
    for (int32_t i = 0; i < entries.num; i++, to += entry_bytes(plan))
        epx_entry_write(plan, plan->by_node->nodes.node[rank], entries.first + i,
                        (int32_t *)(void *)to);
}

static void unpack_items(const struct epx_staged *staged, const struct epx_plan *plan, int32_t rank)
{
    struct items records = records_from(staged, plan, rank);
    struct items entries = entries_from(staged, plan, rank);
    int32_t *rows =
        plan->by_node->record_row + (int64_t)rank * plan->shape.max_tokens + records.first;
    size_t bytes = epx_record_bytes(plan->record_shape);
    const char *from = staged->expert_at[rank];

    for (int32_t i = 0; i < records.num; i++, from += record_bytes(plan)) {
        memcpy(epx_plan_record(plan, rank, records.first + i), from, bytes);
        memcpy(&rows[i], from + bytes, sizeof(*rows));
    }
    if (entries.num)
        memcpy(epx_plan_entry(plan, rank, entries.first), from,
               (size_t)(entries.num * entry_bytes(plan)));
}

static int32_t bytes_of(const struct epx_plan *plan, struct items records, struct items entries)
{
    return (int32_t)(records.num * record_bytes(plan) + entries.num * entry_bytes(plan));
}

static int next(struct epx_request *request, int *moved)
{
    const struct epx_plan *plan = request->route->plan;
    struct epx_staged *staged = epx_staged_of(request);
    int32_t *out = staged->block.home_rows, *in = staged->block.expert_rows; /* bytes here */

    *moved = 1;
    if (++staged->round >= staged->num_rounds)
        return epx_routing_finish(request);
    staged->block.row_stride = 1;
    for (int32_t r = 0; r < plan->num_ranks; r++) {
        out[r] = bytes_of(plan, records_to(staged, plan, r), entries_to(staged, plan, r));
        in[r] = bytes_of(plan, records_from(staged, plan, r), entries_from(staged, plan, r));
    }
    epx_staged_measure(staged);
    return EPX_SUCCESS;
}

static int pack(struct epx_request *request)
{
    struct epx_staged *staged = epx_staged_of(request);

    for (int32_t r = 0; r < staged->comm->size; r++)
        pack_items(staged, request->route->plan, r);
    return epx_staged_send(staged, EPX_TO_EXPERTS);
}

static int unpack(struct epx_request *request)
{
    const struct epx_staged *staged = epx_staged_of(request);

    for (int32_t r = 0; r < staged->comm->size; r++)
        unpack_items(staged, request->route->plan, r);
    return EPX_SUCCESS;
}

static int step(struct epx_hier *hier, struct epx_request *request, int *moved)
{
    static const struct epx_step steps[EPX_BLOCK_STEPS] = {
        {next, NULL}, {epx_staged_may_fill, pack}, {epx_staged_has_come, unpack}};

    if (request->phase < EPX_PHASE_VERB)
        return epx_routing_begin_staged(request, moved);
    if (request->phase < EPX_PHASE_ROUTING)
        return epx_staged_step(request, steps, moved);
    EPX_TRY(epx_staged_done(hier->staged, moved));
    if (!*moved)
        return EPX_SUCCESS;
    if (request->phase == AWAIT_COUNTS)
        return assign(hier, request);
    plan_rounds(hier, request);
    return EPX_SUCCESS;
}

int epx_route_tokens_hier(struct epx_request *request, int *moved)
{
    return epx_routing_keep(request, step(epx_hier_of(request), request, moved));
}
