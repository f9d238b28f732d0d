/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_pairs_host.c - expert side of a staged combine: the sum of each row's pairs, each followed
 * by its pair weights' gradients (first segment only), into the stage.
 * Work: the block's pairs. Reads rows_in, weights_in, records; writes expert_at.
 */
#include "kernels/host/host_kernels.h"

void epx_sum_pairs_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                        const struct epx_block *block)
{
    for (int32_t s = 0; s < plan->num_ranks; s++) {
        char *to = block->expert_at[s];

        for (int32_t u = block->record[s]; u < block->record_end[s]; u++) {
            int32_t *record = epx_plan_record(plan, s, u);

            if (record[EPX_RECORD_SLOTS] == 0)
                continue;
            epx_sum_row_pairs(plan, rows, record, block->segment, to);
            if (rows->weighted && block->segment == 0)
                epx_take_pair_weights(plan, rows, record,
                                      (float *)(void *)(to + epx_round_up(rows->cut.bytes, 8)));
            to += block->row_stride;
        }
    }
}
