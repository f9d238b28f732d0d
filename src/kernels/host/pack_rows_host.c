/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pack_rows_host.c - home side of a staged dispatch: a block's rows, by rank in record order,
 * each followed by its pair weights (first segment only), into the stage.
 * Work: the block's rows once. Reads fields, weights_in; writes home_at, and notes in stores how
 * long it took.
 */
#include "kernels/host/host_kernels.h"

void epx_pack_rows_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                        const struct epx_block *block)
{
    int64_t bytes = epx_segment_length(rows->cut, block->segment);

    for (int32_t d = 0; d < plan->num_ranks; d++) {
        const int32_t *tokens = plan->send_token + block->home_row[d];
        struct epx_stage_stores *stores = &block->stores[d];
        char *to = block->home_at[d];

        epx_stage_stores_begin(stores, block->home_rows[d], bytes);
        for (int32_t i = 0; i < block->home_rows[d]; i++, to += block->row_stride) {
            epx_gather_row(rows, tokens[i], block->segment, to, stores->bypasses);
            if (rows->weighted && block->segment == 0)
                epx_give_pair_weights(plan, rows->weights_in, tokens[i], d,
                                      (float *)(void *)(to + epx_round_up(rows->cut.bytes, 8)));
        }
        epx_stage_stores_end(stores);
    }
}
