/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_node_ranks_host.c - a relay in a hierarchical combine: for each node row of a block the sum
 * of what the ranks of the node have of it, in the order of sums, rounded once, followed by its
 * pair weights' gradients (first segment only), into the stage. Work: the rows that it passes on.
 * Reads the areas, entries; writes relay_stage.
 */
#include <string.h>

#include "kernels/host/host_kernels.h"
#include "kernels/node_rows.h"

/* The parts of one entry in the order of sums; returns their number. */
static int find_parts(const struct epx_plan *plan, const uint16_t *ranks, const char *parts[])
{
    const struct epx_node_plan *by_node = plan->by_node;
    int32_t size = epx_node_size(&by_node->nodes, by_node->nodes.own);
    int num = 0, listed = 0;

    memset(by_node->pairs, 0, (size_t)size * sizeof(*by_node->pairs));
    for (int32_t k = plan->shape.top_k - 1; k >= 0; k--)
        if (ranks[k] != EPX_ELSEWHERE && !by_node->pairs[ranks[k]])
            by_node->pairs[ranks[k]] = ++num; /* the rank of the last choice is number 1 */
    for (int32_t i = 0; i < size; i++)
        if (by_node->pairs[i])
            parts[plan->shape.by_choice ? num - by_node->pairs[i] : listed++] = by_node->next[i];
    return num;
}

/* A choice is on one rank only: its gradient is placed, not added. */
static void place_weights(const struct epx_plan *plan, const uint16_t *ranks, int64_t weights_at,
                          float *weights)
{
    const struct epx_node_plan *by_node = plan->by_node;
    int32_t size = epx_node_size(&by_node->nodes, by_node->nodes.own);

    memset(by_node->pairs, 0, (size_t)size * sizeof(*by_node->pairs));
    for (int32_t k = 0; k < plan->shape.top_k; k++) {
        const float *from;

        weights[k] = 0;
        if (ranks[k] == EPX_ELSEWHERE)
            continue;
        from = (const float *)(const void *)(by_node->next[ranks[k]] + weights_at);
        weights[k] = from[by_node->pairs[ranks[k]]++];
    }
}

static void sum_entry(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                      const struct epx_block *tokens, const uint16_t *ranks, char *to)
{
    const struct epx_node_plan *by_node = plan->by_node;
    const char *parts[EPX_MAX_TOP_K];
    int64_t weights_at = epx_round_up(rows->cut.bytes, 8);
    int num = find_parts(plan, ranks, parts);

    epx_sum_node_rows(rows, tokens->segment, parts, num, to);
    if (rows->weighted && tokens->segment == 0)
        place_weights(plan, ranks, weights_at, (float *)(void *)(to + weights_at));
    for (int32_t k = 0; k < plan->shape.top_k; k++)
        if (ranks[k] != EPX_ELSEWHERE && by_node->pairs[ranks[k]]) {
            by_node->next[ranks[k]] += tokens->row_stride;
            by_node->pairs[ranks[k]] = 0;
        }
}

static void sum_home(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                     const struct epx_node_block *block, int32_t home)
{
    const struct epx_nodes *nodes = &plan->by_node->nodes;
    const int32_t *ranks = nodes->ranks + nodes->first[nodes->own];
    char *to = block->relay_stage + block->entry_at[home];
    int64_t end = block->entry[home] + block->entry_rows[home];

    for (int32_t i = 0; i < epx_node_size(nodes, nodes->own); i++)
        plan->by_node->next[i] = block->area[ranks[i]] + block->area_at[ranks[i]][home];
    for (int64_t e = block->entry[home]; e < end; e++, to += block->tokens->row_stride)
        sum_entry(plan, rows, block->tokens, epx_entry_ranks(epx_plan_entry(plan, home, e)), to);
}

void epx_sum_node_ranks_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                             const struct epx_node_block *block)
{
    for (int32_t s = 0; s < plan->num_ranks; s++)
        if (plan->by_node->served[s] >= 0)
            sum_home(plan, rows, block, s);
}
