/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * routing_staged.c - routing by messages: counts by allgather, then the records by alltoallv in
 * as many exchanges as the longest list of records needs, which every rank reads from the
 * matrix.
 */
#include "coll/routing.h"
#include "coll/staged/staged.h"
#include "coll/verbs.h"

int epx_routing_begin_staged(struct epx_request *request, int *moved)
{
    const struct epx_staged *staged = epx_staged_of(request);
    const struct epx_plan *plan = request->route->plan;
    int weighted;

    EPX_TRY(epx_staged_handshake(request, &weighted, moved));
    if (!*moved)
        return EPX_SUCCESS;
    request->phase = EPX_PHASE_ROUTING;
    epx_routing_count(request);
    return staged->messages->allgather(
        staged->state, plan->own_counts, plan->matrix,
        (int)(epx_count_words(plan->count_shape) * sizeof(*plan->own_counts)));
}

int64_t epx_routing_most_records(const struct epx_plan *plan)
{
    int64_t most = 0;

    for (int32_t s = 0; s < plan->num_ranks; s++)
        for (int32_t d = 0; d < plan->num_ranks; d++)
            if (epx_plan_unique(plan, s, d) > most)
                most = epx_plan_unique(plan, s, d);
    return most;
}

int epx_routing_assign_staged(struct epx_request *request)
{
    struct epx_plan *plan = request->route->plan;
    int64_t row = 0;

    for (int32_t d = 0; d < plan->num_ranks; d++) {
        plan->record_to[d] = epx_record_at(plan->own_records, plan->record_shape, row);
        row += epx_plan_unique(plan, plan->rank, d);
    }
    return epx_routing_assign(request);
}

static int assign(struct epx_staged *staged, struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;
    int64_t rows = epx_staged_rows(staged, (int64_t)epx_record_bytes(plan->record_shape));

    staged->round = -1;
    staged->num_rounds = (epx_routing_most_records(plan) + rows - 1) / rows;
    staged->per_round = (int32_t)rows;
    request->phase = EPX_PHASE_VERB;
    return epx_routing_assign_staged(request);
}

/* Records of a list that travel in the round under way. */
static int32_t records_of_round(const struct epx_staged *staged, int32_t all)
{
    int64_t rest = all - staged->round * staged->per_round;

    return rest < 0 ? 0 : rest < staged->per_round ? (int32_t)rest : staged->per_round;
}

static int next(struct epx_request *request, int *moved)
{
    struct epx_staged *staged = epx_staged_of(request);
    const struct epx_plan *plan = request->route->plan;
    struct epx_block *block = &staged->block;

    *moved = 1;
    if (++staged->round >= staged->num_rounds)
        return epx_routing_finish(request);
    block->row_stride = (int64_t)epx_record_bytes(plan->record_shape);
    for (int32_t r = 0; r < plan->num_ranks; r++) {
        block->home_rows[r] = records_of_round(staged, epx_plan_unique(plan, plan->rank, r));
        block->expert_rows[r] = records_of_round(staged, plan->view.rank_counts[r]);
    }
    epx_staged_measure(staged);
    return EPX_SUCCESS;
}

static int pack(struct epx_request *request)
{
    struct epx_staged *staged = epx_staged_of(request);
    const struct epx_plan *plan = request->route->plan;

    for (int32_t r = 0; r < plan->num_ranks; r++)
        if (staged->home_counts[r])
            memcpy(staged->home_at[r],
                   epx_record_at(plan->record_to[r], plan->record_shape,
                                 staged->round * staged->per_round),
                   (size_t)staged->home_counts[r]);
    return epx_staged_send(staged, EPX_TO_EXPERTS);
}

static int unpack(struct epx_request *request)
{
    const struct epx_staged *staged = epx_staged_of(request);
    const struct epx_plan *plan = request->route->plan;

    for (int32_t r = 0; r < plan->num_ranks; r++)
        if (staged->expert_counts[r])
            memcpy(epx_plan_record(plan, r, staged->round * staged->per_round),
                   staged->expert_at[r], (size_t)staged->expert_counts[r]);
    return EPX_SUCCESS;
}

static int step(struct epx_staged *staged, struct epx_request *request, int *moved)
{
    static const struct epx_step steps[EPX_BLOCK_STEPS] = {
        {next, NULL}, {epx_staged_may_fill, pack}, {epx_staged_has_come, unpack}};

    if (request->phase < EPX_PHASE_VERB)
        return epx_routing_begin_staged(request, moved);
    if (request->phase < EPX_PHASE_ROUTING)
        return epx_staged_step(request, steps, moved);
    EPX_TRY(epx_staged_done(staged, moved));
    return *moved ? assign(staged, request) : EPX_SUCCESS;
}

int epx_route_tokens_staged(struct epx_request *request, int *moved)
{
    return epx_routing_keep(request, step(epx_staged_of(request), request, moved));
}
