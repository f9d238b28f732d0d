/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * routing_tiered.c - routing by messages where rows cross to a node once: counts by allgather,
 * then the numbers of node rows likewise, then by alltoallv the records, each with its node row,
 * and to the relays an entry for each node row. Every rank reads from the two matrices how many
 * exchanges the longest lists need.
 */
#include "routing.h"
#include "tiers.h"
#include "verbs.h"

enum { AWAIT_COUNTS = EPX_PHASE_VERB, AWAIT_NODE_ROWS, NEXT, PACK, EXCHANGE };

/* What the round under way moves: records, or entries. */
struct list {
    int entries;
    int64_t bytes; /* of an item */
    int64_t first; /* item of every list that the round begins with */
    int64_t per_round;
};

static int64_t record_bytes(const struct epx_plan *plan)
{
    return (int64_t)epx_record_bytes(plan->record_shape) + (int64_t)sizeof(int32_t);
}

static struct list list_of_round(const struct epx_tiers *tiers, const struct epx_plan *plan)
{
    int64_t round = tiers->staged->round;
    struct list list = {.entries = round >= tiers->record_rounds};

    list.bytes = list.entries ? (int64_t)epx_entry_bytes(plan->top_k) : record_bytes(plan);
    list.per_round = epx_staged_rows(tiers->staged, list.bytes);
    list.first = (round - (list.entries ? tiers->record_rounds : 0)) * list.per_round;
    return list;
}

static int32_t items_of_round(struct list list, int64_t all)
{
    int64_t rest = all - list.first;

    return rest < 0 ? 0 : (int32_t)(rest < list.per_round ? rest : list.per_round);
}

static int64_t rounds_of(const struct epx_tiers *tiers, int64_t most, int64_t item_bytes)
{
    int64_t per_round = epx_staged_rows(tiers->staged, item_bytes);

    return (most + per_round - 1) / per_round;
}

static int assign(struct epx_tiers *tiers, struct epx_request *request)
{
    const struct epx_transport *transport = tiers->staged->transport;
    struct epx_plan *plan = request->route->plan;

    EPX_TRY(epx_routing_assign_staged(request));
    EPX_TRY(tiers->comm->kernels->list_node_rows(plan, EPX_STREAM_NULL));
    request->phase = AWAIT_NODE_ROWS;
    return transport->ops->allgather(
        transport->state, plan->by_node->rows, plan->by_node->matrix,
        plan->by_node->nodes.num_nodes * (int)sizeof(*plan->by_node->rows));
}

/* Rows for a home's own node need no relay. */
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

static void plan_rounds(struct epx_tiers *tiers, struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;
    int64_t entry_bytes = (int64_t)epx_entry_bytes(plan->top_k);

    tiers->record_rounds =
        rounds_of(tiers, epx_routing_most_records(plan), record_bytes(plan));
    tiers->staged->round = -1;
    tiers->staged->num_rounds =
        tiers->record_rounds + rounds_of(tiers, most_entries(plan), entry_bytes);
    request->phase = NEXT;
}

static int64_t items_to(const struct epx_plan *plan, struct list list, int32_t rank)
{
    const struct epx_nodes *nodes = &plan->by_node->nodes;
    int32_t node = nodes->node[rank];

    if (!list.entries)
        return epx_plan_unique(plan, plan->rank, rank);
    return node != nodes->own && epx_relay(nodes, plan->rank, node) == rank
               ? plan->by_node->rows[node]
               : 0;
}

static int64_t items_from(const struct epx_plan *plan, struct list list, int32_t rank)
{
    const struct epx_node_plan *by_node = plan->by_node;

    if (!list.entries)
        return plan->rank_counts[rank];
    return by_node->served[rank] >= 0
               ? by_node->matrix[(int64_t)rank * by_node->nodes.num_nodes + by_node->nodes.own]
               : 0;
}

/* One record, and the node row of its token. */
static void pack_record(const struct epx_plan *plan, int32_t rank, int64_t index, char *to)
{
    size_t bytes = epx_record_bytes(plan->record_shape);

    memcpy(to, epx_record_at(plan->record_to[rank], plan->record_shape, index), bytes);
    memcpy(to + bytes, &plan->by_node->send_row[plan->send_offset[rank] + index],
           sizeof(*plan->by_node->send_row));
}

static void unpack_record(const struct epx_plan *plan, int32_t rank, int64_t index,
                          const char *from)
{
    size_t bytes = epx_record_bytes(plan->record_shape);

    memcpy(epx_plan_record(plan, rank, index), from, bytes);
    memcpy(&plan->by_node->record_row[(int64_t)rank * plan->max_tokens + index], from + bytes,
           sizeof(*plan->by_node->record_row));
}

static void pack_items(const struct epx_tiers *tiers, const struct epx_plan *plan,
                       struct list list, int32_t rank)
{
    const struct epx_staged *staged = tiers->staged;
    char *to = staged->home_at[rank];

    for (int32_t i = 0; i < staged->block.home_rows[rank]; i++, to += list.bytes) {
        if (list.entries)
            epx_entry_write(plan, plan->by_node->nodes.node[rank], list.first + i,
                            (int32_t *)(void *)to);
        else
            pack_record(plan, rank, list.first + i, to);
    }
}

static void unpack_items(const struct epx_tiers *tiers, const struct epx_plan *plan,
                         struct list list, int32_t rank)
{
    const struct epx_staged *staged = tiers->staged;
    const char *from = staged->expert_at[rank];

    for (int32_t i = 0; i < staged->block.expert_rows[rank]; i++, from += list.bytes) {
        if (list.entries)
            memcpy(epx_plan_entry(plan, rank, list.first + i), from, (size_t)list.bytes);
        else
            unpack_record(plan, rank, list.first + i, from);
    }
}

static int next(struct epx_tiers *tiers, struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;
    struct epx_staged *staged = tiers->staged;
    struct list list;

    if (++staged->round >= staged->num_rounds)
        return epx_routing_finish(request);
    list = list_of_round(tiers, plan);
    staged->block.row_stride = list.bytes;
    for (int32_t r = 0; r < plan->num_ranks; r++) {
        staged->block.home_rows[r] = items_of_round(list, items_to(plan, list, r));
        staged->block.expert_rows[r] = items_of_round(list, items_from(plan, list, r));
    }
    epx_staged_measure(staged);
    request->phase = PACK;
    return EPX_SUCCESS;
}

static int pack(struct epx_tiers *tiers, struct epx_request *request, int *moved)
{
    const struct epx_plan *plan = request->route->plan;

    if (!epx_staged_claim(tiers->staged, EPX_TO_EXPERTS))
        return EPX_SUCCESS;
    *moved = 1;
    for (int32_t r = 0; r < plan->num_ranks; r++)
        pack_items(tiers, plan, list_of_round(tiers, plan), r);
    request->phase = EXCHANGE;
    return epx_staged_send(tiers->staged, EPX_TO_EXPERTS);
}

static int unpack(struct epx_tiers *tiers, struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;
    struct list list = list_of_round(tiers, plan);

    for (int32_t r = 0; r < plan->num_ranks; r++)
        unpack_items(tiers, plan, list, r);
    request->phase = NEXT;
    return EPX_SUCCESS;
}

static int step(struct epx_tiers *tiers, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = tiers->staged;

    if (request->phase < AWAIT_COUNTS)
        return epx_routing_begin_staged(request, moved);
    if (request->phase == NEXT) {
        *moved = 1;
        return next(tiers, request);
    }
    if (request->phase == PACK)
        return pack(tiers, request, moved);
    EPX_TRY(epx_staged_done(staged, moved));
    if (!*moved)
        return EPX_SUCCESS;
    switch (request->phase) {
    case AWAIT_COUNTS: return assign(tiers, request);
    case AWAIT_NODE_ROWS: plan_rounds(tiers, request); return EPX_SUCCESS;
    default: return unpack(tiers, request);
    }
}

int epx_route_tokens_tiered(struct epx_request *request, int *moved)
{
    return epx_routing_keep(request, step(epx_tiers_of(request), request, moved));
}
