/* SPDX-License-Identifier: BSD-3-Clause */
/* node_plan.c - memory of the part of a plan that lists rows by node. */
#include <stdlib.h>
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

/* Allocates the next array; remembers a failure. */
static void *array(int *failed, int64_t n, size_t element_bytes)
{
    void *memory = epx_memory_zeroed((size_t)n, element_bytes);

    *failed |= !memory;
    return memory;
}

static int allocate(struct epx_node_plan *by_node, const struct epx_plan *plan)
{
    struct epx_nodes *nodes = &by_node->nodes;
    int64_t ranks = plan->num_ranks, tokens = plan->shape.max_tokens, num_nodes = nodes->num_nodes;
    int64_t rows = tokens * (plan->shape.top_k < ranks ? plan->shape.top_k : ranks);
    int failed = 0;

    nodes->first = array(&failed, num_nodes + 1, sizeof(*nodes->first));
    nodes->index = array(&failed, ranks, sizeof(*nodes->index));
    by_node->token_rows = array(&failed, tokens, sizeof(*by_node->token_rows));
    by_node->rows = array(&failed, num_nodes, sizeof(*by_node->rows));
    by_node->row_token = array(&failed, num_nodes * tokens, sizeof(*by_node->row_token));
    by_node->token_row = array(&failed, rows, sizeof(*by_node->token_row));
    by_node->send_row = array(&failed, rows, sizeof(*by_node->send_row));
    by_node->matrix = array(&failed, ranks * num_nodes, sizeof(*by_node->matrix));
    by_node->record_row = array(&failed, ranks * tokens, sizeof(*by_node->record_row));
    by_node->served = array(&failed, ranks, sizeof(*by_node->served));
    by_node->next = array(&failed, ranks, sizeof(*by_node->next));
    by_node->pairs = array(&failed, ranks, sizeof(*by_node->pairs));
    return failed;
}

int epx_node_plan_create(const struct epx_comm *comm, struct epx_plan *plan)
{
    struct epx_node_plan *by_node = epx_memory_zeroed(1, sizeof(*by_node));
    int failed = !by_node;

    plan->by_node = by_node;
    if (by_node) {
        by_node->nodes.num_nodes = comm->num_nodes;
        by_node->nodes.own = comm->node[comm->rank];
        by_node->nodes.node = comm->node;
        by_node->nodes.ranks = plan->rank_order;
        failed = allocate(by_node, plan);
    }
    if (!failed) {
        epx_nodes_place(&by_node->nodes, plan->num_ranks);
        by_node->rows_per_token = most_rows(&by_node->nodes, plan->num_ranks, by_node->pairs);
        by_node->entries =
            array(&failed, find_served(by_node, plan) * (int64_t)plan->shape.max_tokens,
                  epx_entry_bytes(plan->shape.top_k));
    }
    EPX_FAIL_IF(failed, EPX_ERR_NO_MEM, "no memory for the rows of %d tokens to %d nodes",
                plan->shape.max_tokens, comm->num_nodes);
    return EPX_SUCCESS;
}

void epx_node_plan_free(struct epx_plan *plan)
{
    struct epx_node_plan *by_node = plan->by_node;

    if (!by_node)
        return;
    free(by_node->nodes.first);
    free(by_node->nodes.index);
    free(by_node->token_rows);
    free(by_node->rows);
    free(by_node->row_token);
    free(by_node->token_row);
    free(by_node->send_row);
    free(by_node->matrix);
    free(by_node->record_row);
    free(by_node->served);
    free(by_node->entries);
    free((void *)by_node->next);
    free(by_node->pairs);
    free(by_node);
    plan->by_node = NULL;
}
