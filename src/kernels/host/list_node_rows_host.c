/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * list_node_rows_host.c - lists the rows that travel by node, and gives each record the number of
 * its node row. Work: rows + records of this rank. Reads the send and token lists, own records;
 * writes rows, row_token, token_row, send_row. Order: token.
 */
#include <string.h>

#include "kernels/host/host_kernels.h"
#include "kernels/node_rows.h"

/* Numbers the node rows of one token, whose ranks are listed node by node. */
static void list_token(const struct epx_plan *plan, int32_t token)
{
    struct epx_node_plan *by_node = plan->by_node;
    int32_t last = -1;

    for (int64_t i = plan->token_offset[token]; i < plan->token_offset[token + 1]; i++) {
        int32_t rank = plan->token_rank[i], node = by_node->nodes.node[rank];

        if (node != last)
            by_node->row_token[(int64_t)node * plan->shape.max_tokens + by_node->rows[node]++] =
                token;
        last = node;
        by_node->token_row[i] = by_node->rows[node] - 1;
        by_node->send_row[plan->send_offset[rank] + plan->token_row[i]] = by_node->token_row[i];
    }
}

/* Turns send_row of a rank from one entry for each row that travels into one for each record, of
 * which there may be more. */
static void spread_to_records(const struct epx_plan *plan, int32_t rank)
{
    int32_t *row = plan->by_node->send_row + plan->send_offset[rank];
    int32_t left = plan->send_rows[rank];

    for (int32_t u = epx_plan_unique(plan, plan->rank, rank) - 1; u >= 0; u--) {
        const int32_t *record = epx_record_at(plan->record_to[rank], plan->record_shape, u);

        row[u] = record[EPX_RECORD_SLOTS] ? row[--left] : -1;
    }
}

void epx_list_node_rows_host(struct epx_plan *plan)
{
    struct epx_node_plan *by_node = plan->by_node;

    memset(by_node->rows, 0, (size_t)by_node->nodes.num_nodes * sizeof(*by_node->rows));
    for (int32_t t = 0; t < plan->num_tokens; t++)
        list_token(plan, t);
    for (int32_t r = 0; r < plan->num_ranks; r++)
        spread_to_records(plan, r);
}
