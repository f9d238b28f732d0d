/* SPDX-License-Identifier: BSD-3-Clause */
/* node_plan.c - memory of the part of a plan that lists rows by node. */
#include <string.h>

#include "coll/hier/hier.h"

/*
 * The most rows of one token index that a stage takes on any rank: those of a home for all other
 * nodes, or those that a relay has of the homes it serves and its own. All ranks find the same
 * number.
 */
static int32_t most_rows(const struct epx_nodes *nodes, int32_t num_ranks, int32_t *at_relay)
{
    int32_t most = nodes->num_nodes;

    memset(at_relay, 0, (size_t)num_ranks * sizeof(*at_relay));
    for (int32_t s = 0; s < num_ranks; s++)
        for (int32_t m = 0; m < nodes->num_nodes; m++) {
            int32_t rows = ++at_relay[epx_relay(nodes, s, m)];

            most = rows > most ? rows : most;
        }
    return most;
}

/* Numbers the homes that this rank serves; returns how many they are. */
static int32_t find_served(struct epx_node_plan *by_node, const struct epx_plan *plan)
{
    const struct epx_nodes *nodes = &by_node->nodes;
    int32_t num = 0;

    for (int32_t s = 0; s < plan->num_ranks; s++)
        by_node->served[s] =
            s != plan->rank && epx_relay(nodes, s, nodes->own) == plan->rank ? num++ : -1;
    return num;
}

static void allocate(struct epx_node_plan *by_node, struct epx_plan *plan)
{
    struct epx_arrays *all = &plan->arrays;
    struct epx_nodes *nodes = &by_node->nodes;
    int64_t ranks = plan->num_ranks, tokens = plan->shape.max_tokens, num_nodes = nodes->num_nodes;
    int64_t rows = tokens * (plan->shape.top_k < ranks ? plan->shape.top_k : ranks);

    EPX_ARRAY(all, nodes->first, num_nodes + 1);
    EPX_ARRAY(all, nodes->index, ranks);
    EPX_ARRAY(all, by_node->token_rows, tokens);
    EPX_ARRAY(all, by_node->rows, num_nodes);
    EPX_ARRAY(all, by_node->row_token, num_nodes * tokens);
    EPX_ARRAY(all, by_node->token_row, rows);
    EPX_ARRAY(all, by_node->send_row, rows);
    EPX_ARRAY(all, by_node->matrix, ranks * num_nodes);
    EPX_ARRAY(all, by_node->record_row, ranks * tokens);
    EPX_ARRAY(all, by_node->served, ranks);
    EPX_ARRAY(all, by_node->next, ranks);
    EPX_ARRAY(all, by_node->pairs, ranks);
}

/* Local: finds the homes that this rank serves, and what their entries take. */
static void find_nodes(struct epx_node_plan *by_node, struct epx_plan *plan)
{
    epx_nodes_place(&by_node->nodes, plan->num_ranks);
    by_node->rows_per_token = most_rows(&by_node->nodes, plan->num_ranks, by_node->pairs);
    by_node->entries =
        epx_arrays_add(&plan->arrays, find_served(by_node, plan) * (int64_t)plan->shape.max_tokens,
                       epx_entry_bytes(plan->shape.top_k));
}

int epx_node_plan_create(const struct epx_comm *comm, struct epx_plan *plan)
{
    struct epx_node_plan *by_node = EPX_ARRAY(&plan->arrays, plan->by_node, 1);

    if (by_node) {
        by_node->nodes.num_nodes = comm->num_nodes;
        by_node->nodes.own = comm->node[comm->rank];
        by_node->nodes.node = comm->node;
        by_node->nodes.ranks = plan->rank_order;
        allocate(by_node, plan);
    }
    if (!plan->arrays.failed)
        find_nodes(by_node, plan);
    EPX_FAIL_IF(plan->arrays.failed, EPX_ERR_NO_MEM,
                "no memory for the rows of %d tokens to %d nodes", plan->shape.max_tokens,
                comm->num_nodes);
    return EPX_SUCCESS;
}
