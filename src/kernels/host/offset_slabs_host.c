/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offset_slabs_host.c - from the whole count matrix: the slabs here, and this rank's first
 * slots on every rank. slot of the i-th pair of expert e on rank s = slab start of e + pairs of
 * e on the ranks before s + i; slabs.h has the slabs. Work: ranks * (experts + ranks). Reads
 * matrix; writes capacities, next_slot, next_row, short_*, and the counts and offsets of the view;
 * if the routing fails for lack of room, its slots too.
 */
#include "kernels/host/host_kernels.h"

#include <string.h>

#include "kernels/slabs.h"

static int64_t clamp(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

/* Pairs of an expert on the ranks from the first one to before the end. */
static int64_t pairs_of(const struct epx_plan *plan, int32_t expert, int32_t first, int32_t end)
{
    int64_t pairs = 0;

    for (int32_t s = first; s < end; s++)
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

static void note_short_expert(struct epx_plan *plan, int32_t expert, int64_t pairs)
{
    if (plan->shape.rows_per_expert && pairs > plan->shape.rows_per_expert &&
        plan->short_expert < 0) {
        plan->short_expert = expert;
        plan->short_pairs = pairs;
    }
}

/* The slabs of one rank, by expert; returns the rows that the rank needs. */
static int64_t offset_rank(struct epx_plan *plan, int32_t rank)
{
    const struct epx_plan copy = *plan; /* no store can alias a local copy */
    int32_t first = copy.first_expert[rank], end = copy.first_expert[rank + 1];
    int64_t start = 0, most = 0;

    for (int32_t e = first; e < end; e++) {
        int64_t before = pairs_of(&copy, e, 0, copy.rank);
        int64_t total = before + pairs_of(&copy, e, copy.rank, copy.num_ranks);

        note_short_expert(plan, e, total);
        copy.next_slot[e] = start + before;
        if (rank == copy.rank) {
            copy.view.expert_offsets[e - first] = start;
            copy.view.expert_counts[e - first] = (int32_t)clamp(total, INT32_MAX);
        }
        start += epx_slab_rows(&copy.shape, total);
        most = total > most ? total : most;
    }
    return epx_required_rows(&copy.shape, end - first, start, most);
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
            pairs_of(plan, plan->shape.first_expert + e, 0, plan->num_ranks), INT32_MAX);
}

/* Shows the slabs as grouped matrix products take them. */
static void show_groups(struct epx_plan *plan)
{
    const struct epx_plan_view *view = &plan->view;

    for (int32_t e = 0; e < plan->shape.num_local && !plan->shape.rank_major; e++) {
        view->expert_ends[e] = (int32_t)view->expert_offsets[e + 1];
        view->group_sizes[e] = (int32_t)(view->expert_offsets[e + 1] - view->expert_offsets[e]);
    }
}

/* Clips the view to what is kept: all, unless rows are dropped. */
static void clip_view(struct epx_plan *plan)
{
    const struct epx_plan_view *view = &plan->view;
    int64_t capacity = plan->capacities[plan->rank];

    *view->num_rows = epx_used_rows(&plan->shape, *view->required_rows, capacity);
    for (int32_t e = 0; e < plan->shape.num_local && plan->shape.drops && !plan->shape.rank_major;
         e++) {
        int64_t limit = epx_slab_limit(&plan->shape, e, capacity);

        view->expert_offsets[e] = clamp(view->expert_offsets[e], capacity);
        view->expert_counts[e] =
            (int32_t)clamp(view->expert_counts[e], limit - view->expert_offsets[e]);
    }
    view->expert_offsets[plan->shape.num_local] = *view->num_rows;
}

/* Shows a routing without tokens: a user's kernel that was queued behind a routing that fails finds
 * no row that is not there. required_rows stays. */
static void empty_view(struct epx_plan *plan)
{
    const struct epx_plan_view *view = &plan->view;
    size_t local = (size_t)plan->shape.num_local;
    size_t pairs = (size_t)plan->shape.max_tokens * (size_t)plan->shape.top_k;
    int64_t capacity = plan->capacities[plan->rank];

    memset(view->expert_counts, 0, local * sizeof(*view->expert_counts));
    for (int32_t e = 0; e <= plan->shape.num_local; e++)
        view->expert_offsets[e] = e * epx_slab_rows(&plan->shape, 0);
    memset(view->rank_counts, 0, (size_t)plan->num_ranks * sizeof(*view->rank_counts));
    memset(view->slots, 0xff, pairs * sizeof(*view->slots));
    memset(view->row_tokens, 0xff, (size_t)capacity * sizeof(*view->row_tokens));
    memset(view->row_ranks, 0xff, (size_t)capacity * sizeof(*view->row_ranks));
    if (!plan->shape.rank_major)
        memset(view->row_choices, 0xff, (size_t)capacity * sizeof(*view->row_choices));
    *view->num_rows = epx_used_rows(&plan->shape, 0, capacity);
}

static void count_arrived(struct epx_plan *plan)
{
    const struct epx_plan_view *view = &plan->view;

    if (view->arrived_rows == view->num_rows)
        return;
    *view->arrived_rows = 0;
    for (int32_t e = 0; e < plan->shape.num_local; e++)
        *view->arrived_rows += view->expert_counts[e];
}

static void read_capacities(struct epx_plan *plan)
{
    for (int32_t r = 0; r < plan->num_ranks; r++)
        plan->capacities[r] = *epx_capacity_word(epx_plan_counts(plan, r), plan->count_shape);
}

void epx_offset_slabs_host(struct epx_plan *plan)
{
    plan->short_rank = plan->short_expert = -1;
    read_capacities(plan);
    if (plan->shape.rank_major)
        offset_rank_major(plan);
    else
        offset_expert_major(plan);
    for (int32_t s = 0; s < plan->num_ranks; s++)
        plan->view.rank_counts[s] = epx_plan_unique(plan, s, plan->rank);
    if (plan->short_rank >= 0 && !plan->shape.drops)
        empty_view(plan);
    else
        clip_view(plan);
    show_groups(plan);
    count_arrived(plan);
    *plan->view.overflow = plan->short_rank >= 0;
}
