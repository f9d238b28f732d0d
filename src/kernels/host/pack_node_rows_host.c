/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pack_node_rows_host.c - home side of a hierarchical dispatch: a block's node rows, each followed
 * by its token's weights (first segment only); those for its own node into the home's area, the
 * others into the stage. Work: the block's node rows once. Reads fields, weights_in.
 */
#include <string.h>

#include "kernels/host/host_kernels.h"
#include "kernels/node_rows.h"

static void pack_row(const struct epx_plan *plan, const struct epx_home_rows *rows, int64_t segment,
                     int32_t token, char *to)
{
    int64_t top_k = plan->shape.top_k;

    epx_gather_row(rows, token, segment, to, 0);
    if (rows->weighted && segment == 0)
        memcpy(to + epx_round_up(rows->cut.bytes, 8), rows->weights_in + token * top_k,
               (size_t)top_k * sizeof(*rows->weights_in));
}

void epx_pack_node_rows_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                             const struct epx_node_block *block)
{
    const struct epx_node_plan *by_node = plan->by_node;

    for (int32_t m = 0; m < by_node->nodes.num_nodes; m++) {
        const int32_t *tokens =
            by_node->row_token + (int64_t)m * plan->shape.max_tokens + block->home_row[m];
        char *to = m == by_node->nodes.own ? block->area[plan->rank] : block->home_stage;

        to += block->home_at[m];
        for (int32_t i = 0; i < block->home_rows[m]; i++, to += block->tokens->row_stride)
            pack_row(plan, rows, block->tokens->segment, tokens[i], to);
    }
}
