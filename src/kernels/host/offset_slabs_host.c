/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offset_slabs_host.c - from the whole count matrix: the slabs here, and this rank's first
 * slots on every rank. slot of the i-th pair of expert e on rank s = slab start of e + pairs of
 * e on the ranks before s + i. Work: ranks * (experts + ranks). Reads matrix, capacities;
 * writes next_slot, next_row, short_*, and the counts and offsets of the view.
 */
#include "kernels/host/host_kernels.h"

static int64_t clamp(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

/* Pairs of an expert on the ranks before the given one. */
static int64_t pairs_before(const struct epx_plan *plan, int32_t expert, int32_t rank)
{
    int64_t pairs = 0;

    for (int32_t s = 0; s < rank; s++)
        pairs += epx_plan_counts(plan, s)[expert];
    return pairs;
}

static int64_t rows_before(const struct epx_plan *plan, int32_t destination, int32_t rank)
{
    int64_t rows = 0;

    for (int32_t s = 0; s < rank; s++)
        rows += epx_plan_unique(plan, s, destination);
    return rows;
}

static void note_short(struct epx_plan *plan, int32_t rank, int64_t required)
{
    if (required > plan->capacities[rank] && plan->short_rank < 0) {
        plan->short_rank = rank;
        plan->short_rows = required;
    }
}

/* The slabs of one rank in expert-major order; returns the rows they take. */
static int64_t offset_rank(struct epx_plan *plan, int32_t rank)
{
    int32_t first = epx_first_expert(rank, plan->shape.num_experts, plan->num_ranks);
    int32_t end = epx_first_expert(rank + 1, plan->shape.num_experts, plan->num_ranks);
    int64_t start = 0;

    for (int32_t e = first; e < end; e++) {
        int64_t total = pairs_before(plan, e, plan->num_ranks);

        plan->next_slot[e] = start + pairs_before(plan, e, plan->rank);
        if (rank == plan->rank) {
            plan->view.expert_offsets[e - first] = start;
            plan->view.expert_counts[e - first] = (int32_t)clamp(total, INT32_MAX);
        }
        start += epx_round_up(total, plan->shape.alignment);
    }
    if (rank == plan->rank)
        plan->view.expert_offsets[plan->shape.num_local] = start;
    return start;
}

static void offset_expert_major(struct epx_plan *plan)
{
    for (int32_t d = 0; d < plan->num_ranks; d++) {
        int64_t required = offset_rank(plan, d);

        note_short(plan, d, required);
        if (d == plan->rank)
            *plan->view.required_rows = required;
    }
}

static void offset_rank_major(struct epx_plan *plan)
{
    for (int32_t d = 0; d < plan->num_ranks; d++) {
        int64_t required = rows_before(plan, d, plan->num_ranks);

        plan->next_row[d] = rows_before(plan, d, plan->rank);
        note_short(plan, d, required);
        if (d == plan->rank)
            *plan->view.required_rows = required;
    }
    for (int32_t e = 0; e < plan->shape.num_local; e++)
        plan->view.expert_counts[e] = (int32_t)clamp(
            pairs_before(plan, plan->shape.first_expert + e, plan->num_ranks), INT32_MAX);
}

/* Clips the view to what is kept; without the drop policy too many rows are an error and stay. */
static void clip_view(struct epx_plan *plan)
{
    int64_t capacity = plan->capacities[plan->rank];

    *plan->view.num_rows =
        plan->shape.drops ? clamp(*plan->view.required_rows, capacity) : *plan->view.required_rows;
    if (!plan->shape.drops || plan->shape.rank_major)
        return;
    for (int32_t e = 0; e < plan->shape.num_local; e++) {
        plan->view.expert_offsets[e] = clamp(plan->view.expert_offsets[e], capacity);
        plan->view.expert_counts[e] =
            (int32_t)clamp(plan->view.expert_counts[e], capacity - plan->view.expert_offsets[e]);
    }
    plan->view.expert_offsets[plan->shape.num_local] = *plan->view.num_rows;
}

void epx_offset_slabs_host(struct epx_plan *plan)
{
    plan->short_rank = -1;
    if (plan->shape.rank_major)
        offset_rank_major(plan);
    else
        offset_expert_major(plan);
    for (int32_t s = 0; s < plan->num_ranks; s++)
        plan->view.rank_counts[s] = epx_plan_unique(plan, s, plan->rank);
    clip_view(plan);
}
