/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unpack_rows_host.c - expert side of a staged dispatch: a block's rows from the stage to their
 * slots. Work: the block's pairs. Reads expert_at, records; writes fields, row_weights.
 */
#include "kernels/host/host_kernels.h"

void epx_unpack_rows_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                          const struct epx_block *block)
{
    for (int32_t s = 0; s < plan->num_ranks; s++) {
        const char *from = block->expert_at[s];

        for (int32_t u = block->record[s]; u < block->record_end[s]; u++) {
            int32_t *record = epx_plan_record(plan, s, u);
            const char *weights = from + epx_round_up(rows->cut.bytes, 8);
            struct epx_row_segment came = {block->segment, from,
                                           (const float *)(const void *)weights};

            if (record[EPX_RECORD_SLOTS] == 0)
                continue;
            epx_receive_row(plan, rows, s, record, came);
            from += block->row_stride;
        }
    }
    epx_row_copy_fence();
}
