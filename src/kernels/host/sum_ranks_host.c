/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_ranks_host.c - home side of a staged combine: each token's rows, in rank order, summed
 * from the stage into the result. Work: the block's rows. Reads home_at; writes rows, weights.
 */
#include "kernels/host/host_kernels.h"

/* Where in the stage the row of an entry of the list by token lies. */
static const char *staged_row(const struct epx_plan *plan, const struct epx_block *block,
                              int64_t entry)
{
    int32_t rank = plan->token_rank[entry];
    int64_t skipped = block->home_row[rank] - plan->send_offset[rank];

    return block->home_at[rank] + (plan->token_row[entry] - skipped) * block->row_stride;
}

void epx_sum_ranks_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                        const struct epx_block *block)
{
    const char *parts[EPX_MAX_TOP_K];
    int64_t weights_at = epx_round_up(rows->cut.bytes, 8);

    for (int32_t t = block->first_token; t < block->end_token; t++) {
        const int32_t *ranks = plan->token_rank + plan->token_offset[t];
        int num = (int)(plan->token_offset[t + 1] - plan->token_offset[t]);

        for (int i = 0; i < num; i++) {
            parts[i] = staged_row(plan, block, plan->token_offset[t] + i);
            if (rows->weighted && rows->weights && block->segment == 0)
                epx_put_pair_weights(plan, rows->weights, t, ranks[i],
                                     (const float *)(const void *)(parts[i] + weights_at));
        }
        epx_sum_token_rows(plan, rows, t, block->segment,
                           (struct epx_token_parts){parts, ranks, num});
    }
}
