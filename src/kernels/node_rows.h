/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_rows.h - what a routing decides where a row crosses to another node once: who passes it on
 * there, and the rows by node. A node row is a (token, node) of which a pair was kept; its number
 * is its place among its home's rows for that node, in token order.
 */
#ifndef EPX_KERNELS_NODE_ROWS_H
#define EPX_KERNELS_NODE_ROWS_H

#include "kernels/plan.h"

/* Which ranks are on which node; fixed by the communicator. */
struct epx_nodes {
    int32_t num_nodes, own; /* own: the node of this rank */
    const int32_t *node;    /* [R] node of each rank */
    const int32_t *ranks;   /* [R] by (node, rank) */
    int32_t *first;         /* [N + 1] where the ranks of each node begin */
    int32_t *index;         /* [R] place of each rank in its node */
};

struct epx_node_plan {
    struct epx_nodes nodes;
    int32_t rows_per_token; /* most rows that a stage takes of each token index, of all homes */

    int32_t *token_rows; /* [max_tokens] work space: rows that a stage takes of a token index */

    /* the home side */
    int32_t *rows;      /* [N] node rows for each node */
    int32_t *row_token; /* [N][max_tokens] their tokens */
    int32_t *token_row; /* node row of each entry of the plan's list by token */
    int32_t *send_row;  /* node row of each record of this rank, -1 = dropped; by rank, as sent */

    /* exchanged */
    int32_t *matrix;     /* [R][N] rows of all home ranks */
    int32_t *record_row; /* [R][max_tokens] node row of each record here */

    /* the relay's side: an entry for each row that this rank passes on in its node */
    int32_t *served;  /* [R] place of each home among those served here; -1 = not served */
    int32_t *entries; /* [served][max_tokens] */

    /* work space of the kernels, [ranks of this node] */
    const char **next; /* the next part of each rank */
    int32_t *pairs;    /* pairs of the entry on each rank */
};

EPX_HD int32_t epx_node_size(const struct epx_nodes *nodes, int32_t node)
{
    return nodes->first[node + 1] - nodes->first[node];
}

/* Ranks by (node, rank): each node's ranks in one run. */
EPX_HD void epx_nodes_order(const int32_t *node, int32_t num_nodes, int32_t num_ranks,
                            int32_t *ranks)
{
    int32_t placed = 0;

    for (int32_t n = 0; n < num_nodes; n++)
        for (int32_t r = 0; r < num_ranks; r++)
            if (node[r] == n)
                ranks[placed++] = r;
}

/* Given the ranks by (node, rank): where each node's ranks begin, and each rank's place there. */
EPX_HD void epx_nodes_place(struct epx_nodes *nodes, int32_t num_ranks)
{
    for (int32_t i = 0; i < num_ranks; i++) {
        int32_t rank = nodes->ranks[i], node = nodes->node[rank];

        if (i == 0 || node != nodes->node[nodes->ranks[i - 1]])
            nodes->first[node] = i;
        nodes->index[rank] = i - nodes->first[node];
        nodes->first[node + 1] = i + 1;
    }
}

/* The rank of a node that takes a home's rows for it; in its own node the home itself. */
EPX_HD int32_t epx_relay(const struct epx_nodes *nodes, int32_t home, int32_t node)
{
    if (nodes->node[home] == node)
        return home;
    return nodes->ranks[nodes->first[node] + nodes->index[home] % epx_node_size(nodes, node)];
}

/*
 * An entry: what a relay knows of one node row.
 *   int32  token     index on the home rank
 *   uint16 ranks[K]  for each choice the place in the node of the rank that has it
 */
enum { EPX_ELSEWHERE = 0xffff };

EPX_HD size_t epx_entry_bytes(int32_t top_k)
{
    return (size_t)epx_round_up(4 + 2 * (int64_t)top_k, 4);
}

EPX_HD int32_t *epx_entry_at(int32_t *entries, int32_t top_k, int64_t index)
{
    return (int32_t *)((char *)entries + index * (int64_t)epx_entry_bytes(top_k));
}

EPX_HD uint16_t *epx_entry_ranks(int32_t *entry)
{
    return (uint16_t *)(entry + 1);
}

EPX_HD int32_t *epx_plan_entry(const struct epx_plan *plan, int32_t home, int64_t row)
{
    return epx_entry_at(plan->by_node->entries, plan->shape.top_k,
                        (int64_t)plan->by_node->served[home] * plan->shape.max_tokens + row);
}

/* Rows of a home that this rank, which serves it, passes on. */
EPX_HD int32_t epx_served_rows(const struct epx_node_plan *by_node, int32_t home)
{
    return by_node->matrix[(int64_t)home * by_node->nodes.num_nodes + by_node->nodes.own];
}

/* Home side: writes the entry of a node row. */
EPX_HD void epx_entry_write(const struct epx_plan *plan, int32_t node, int64_t row, int32_t *entry)
{
    const struct epx_nodes *nodes = &plan->by_node->nodes;
    int32_t token = plan->by_node->row_token[(int64_t)node * plan->shape.max_tokens + row];
    const int32_t *pair_ranks = plan->pair_ranks + (int64_t)token * plan->shape.top_k;
    uint16_t *ranks = epx_entry_ranks(entry);

    *entry = token;
    for (int32_t k = 0; k < plan->shape.top_k; k++)
        ranks[k] = pair_ranks[k] >= 0 && nodes->node[pair_ranks[k]] == node
                       ? (uint16_t)nodes->index[pair_ranks[k]]
                       : (uint16_t)EPX_ELSEWHERE;
}

/*
 * The rows of one exchange: those of the block's tokens. An area is the part of a node's shared
 * memory that one rank fills and all ranks of the node read: in dispatch with the node rows of the
 * homes it serves, in combine with its sums of each row's pairs.
 */
struct epx_node_block {
    const struct epx_block *tokens; /* tokens, segment, and the rows of each rank */
    int32_t *home_row;              /* [N] this home's first row for each node */
    int32_t *home_rows;             /* [N] */
    int64_t *home_at;    /* [N] where these rows lie in the home stage, or in this rank's area */
    int64_t *entry;      /* [R] first row of each home served here, this one included */
    int64_t *entry_rows; /* [R] */
    int64_t *entry_at;   /* [R] where these rows lie in the area, or in the relay stage */
    char *home_stage, *relay_stage; /* rows from, and for, other nodes */
    char **area;                    /* [R] area of each rank of the node; NULL for other ranks */
    const int64_t **area_at;        /* [R] for each home where its rows lie in the area */
    const int64_t **area_row;       /* [R] for each home the first of its rows in the area */
};

#endif
