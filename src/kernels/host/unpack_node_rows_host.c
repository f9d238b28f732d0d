/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unpack_node_rows_host.c - expert side of a hierarchical dispatch: a block's rows from the areas
 * of their relays in this node to their slots. Work: the block's pairs. Reads the areas, records;
 * writes fields, row_weights.
 */
#include "kernels/host/host_kernels.h"
#include "kernels/node_rows.h"

static void unpack_row(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                       const struct epx_node_block *block, int32_t source, int32_t u)
{
    const struct epx_node_plan *by_node = plan->by_node;
    int32_t *record = epx_plan_record(plan, source, u);
    const uint8_t *choices = epx_record_choices(record, plan->record_shape);
    int32_t relay = epx_relay(&by_node->nodes, source, by_node->nodes.own);
    int64_t row = by_node->record_row[(int64_t)source * plan->shape.max_tokens + u];
    const char *from = block->area[relay] + block->area_at[relay][source] +
                       (row - block->area_row[relay][source]) * block->tokens->row_stride;
    const float *token_weights =
        (const float *)(const void *)(from + epx_round_up(rows->cut.bytes, 8));
    float weights[EPX_MAX_TOP_K];

    if (rows->weighted && block->tokens->segment == 0)
        for (int32_t i = 0; i < record[EPX_RECORD_PAIRS]; i++)
            weights[i] = token_weights[choices[i]];
    epx_receive_row(plan, rows, source, record,
                    (struct epx_row_segment){block->tokens->segment, from, weights});
}

void epx_unpack_node_rows_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                               const struct epx_node_block *block)
{
    const struct epx_block *tokens = block->tokens;

    for (int32_t s = 0; s < plan->num_ranks; s++)
        for (int32_t u = tokens->record[s]; u < tokens->record_end[s]; u++)
            if (epx_plan_record(plan, s, u)[EPX_RECORD_SLOTS])
                unpack_row(plan, rows, block, s, u);
    epx_row_copy_fence();
}
