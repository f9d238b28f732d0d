/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_nodes_host.c - home side of a hierarchical combine: each token's rows, those of the ranks of
 * its own node from their areas and one for every other node from the stage, summed into the
 * result.
 * Work: the block's rows. Reads the areas, home_stage; writes rows, weights.
 */
#include "kernels/host/host_kernels.h"
#include "kernels/node_rows.h"

/* Where the part of an entry of the list by token lies. */
static const char *find_part(const struct epx_plan *plan, const struct epx_node_block *block,
                             int64_t entry)
{
    const struct epx_block *tokens = block->tokens;
    int32_t rank = plan->token_rank[entry], node = plan->by_node->nodes.node[rank];
    int64_t skipped = tokens->home_row[rank] - plan->send_offset[rank];

    if (node == plan->by_node->nodes.own)
        return block->area[rank] + block->area_at[rank][plan->rank] +
               (plan->token_row[entry] - skipped) * tokens->row_stride;
    return block->home_stage + block->home_at[node] +
           (plan->by_node->token_row[entry] - block->home_row[node]) * tokens->row_stride;
}

/* Takes a token's weights from the row of a node, which has a weight for every choice. */
static void put_node_weights(const struct epx_plan *plan, float *weights, int32_t token,
                             int32_t node, const float *node_weights)
{
    int64_t first = (int64_t)token * plan->shape.top_k;

    for (int32_t k = 0; k < plan->shape.top_k; k++) {
        int32_t rank = plan->pair_ranks[first + k];

        if (rank >= 0 && plan->by_node->nodes.node[rank] == node)
            weights[first + k] = node_weights[k];
    }
}

static void put_weights(const struct epx_plan *plan, const struct epx_home_rows *rows,
                        int32_t token, int32_t rank, const char *part)
{
    const float *weights = (const float *)(const void *)(part + epx_round_up(rows->cut.bytes, 8));
    int32_t node = plan->by_node->nodes.node[rank];

    if (node == plan->by_node->nodes.own)
        epx_put_pair_weights(plan, rows->weights, token, rank, weights);
    else
        put_node_weights(plan, rows->weights, token, node, weights);
}

/* Sums a token's parts; the sum of another node stands in for the first of its ranks. */
static void sum_token(const struct epx_plan *plan, const struct epx_home_rows *rows,
                      const struct epx_node_block *block, int32_t token)
{
    const int32_t *node = plan->by_node->nodes.node;
    const char *parts[EPX_MAX_TOP_K];
    int32_t ranks[EPX_MAX_TOP_K];
    int num = 0;

    for (int64_t i = plan->token_offset[token]; i < plan->token_offset[token + 1]; i++) {
        int32_t rank = plan->token_rank[i];

        if (num && node[rank] == node[ranks[num - 1]] && node[rank] != plan->by_node->nodes.own)
            continue;
        parts[num] = find_part(plan, block, i);
        ranks[num] = rank;
        if (rows->weighted && rows->weights && block->tokens->segment == 0)
            put_weights(plan, rows, token, rank, parts[num]);
        num++;
    }
    epx_sum_token_rows(plan, rows, token, block->tokens->segment,
                       (struct epx_token_parts){parts, ranks, num});
}

void epx_sum_nodes_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                        const struct epx_node_block *block)
{
    for (int32_t t = block->tokens->first_token; t < block->tokens->end_token; t++)
        sum_token(plan, rows, block, t);
}
