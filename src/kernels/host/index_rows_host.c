/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * index_rows_host.c - from the records: the home of each row, and how many rows travel here.
 * Work: rows of the receive buffer + records. Reads records, rank_counts; writes row_tokens,
 * row_ranks, recv_rows, and in rank-major row_expert_ids and expert_counts, else row_choices.
 */
#include "kernels/host/host_kernels.h"

static void index_record(struct epx_plan *plan, int32_t source, int32_t *record)
{
    const int32_t *slots = epx_record_slots(record);
    const int32_t *experts = epx_record_experts(record, plan->record_shape);
    const uint8_t *choices = epx_record_choices(record, plan->record_shape);

    for (int32_t i = 0; i < record[EPX_RECORD_SLOTS]; i++) {
        plan->view.row_tokens[slots[i]] = record[EPX_RECORD_TOKEN];
        plan->view.row_ranks[slots[i]] = source;
        if (!plan->shape.rank_major)
            plan->view.row_choices[slots[i]] = choices[i];
    }
    for (int32_t i = 0; plan->shape.rank_major && i < record[EPX_RECORD_PAIRS]; i++) {
        plan->view.row_expert_ids[(int64_t)slots[0] * plan->shape.top_k + choices[i]] = experts[i];
        plan->view.expert_counts[experts[i]]++;
    }
    plan->recv_rows[source] += record[EPX_RECORD_SLOTS] > 0;
}

void epx_index_rows_host(struct epx_plan *plan)
{
    size_t rows = (size_t)*plan->view.num_rows;

    memset(plan->view.row_tokens, 0xff, rows * sizeof(*plan->view.row_tokens));
    memset(plan->view.row_ranks, 0xff, rows * sizeof(*plan->view.row_ranks));
    if (!plan->shape.rank_major)
        memset(plan->view.row_choices, 0xff, rows * sizeof(*plan->view.row_choices));
    else {
        memset(plan->view.row_expert_ids, 0xff,
               rows * (size_t)plan->shape.top_k * sizeof(*plan->view.row_expert_ids));
        memset(plan->view.expert_counts, 0,
               (size_t)plan->shape.num_local * sizeof(*plan->view.expert_counts));
    }
    for (int32_t s = 0; s < plan->num_ranks; s++) {
        plan->recv_rows[s] = 0;
        for (int32_t u = 0; u < plan->view.rank_counts[s]; u++)
            index_record(plan, s, epx_plan_record(plan, s, u));
    }
}
