/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * routing_direct.c - routing by stores: a rank stores its counts into every rank's matrix, then
 * each record into the records of the rank that its row goes to.
 */
#include "base/jitter.h"
#include "coll/direct/direct.h"
#include "coll/routing.h"
#include "coll/verbs.h"

enum { AWAIT_COUNTS = EPX_PHASE_VERB, AWAIT_RECORDS };

static void store_counts(struct epx_direct *direct, const struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;

    for (int32_t r = 0; r < plan->num_ranks; r++) {
        memcpy(epx_counts_of(plan->matrix_of[r], plan->count_shape, plan->rank), plan->own_counts,
               epx_count_words(plan->count_shape) * sizeof(*plan->own_counts));
        epx_direct_post_counted(direct, request, r);
    }
}

/* The first rank whose counts are not here; -1 if all are. */
static int counts_lack(const struct epx_direct *direct, const struct epx_request *request)
{
    for (int r = 0; r < direct->comm->size; r++)
        if (!epx_direct_counted(direct, request, r))
            return r;
    return -1;
}

static int records_lack(const struct epx_direct *direct, const struct epx_request *request)
{
    for (int r = 0; r < direct->comm->size; r++)
        if (!epx_direct_arrived(direct, request, r))
            return r;
    return -1;
}

static int store_records(struct epx_direct *direct, struct epx_request *request)
{
    struct epx_plan *plan = request->route->plan;

    for (int32_t r = 0; r < plan->num_ranks; r++)
        plan->record_to[r] = epx_record_at(plan->records_of[r], plan->record_shape,
                                           (int64_t)plan->rank * plan->shape.max_tokens);
    EPX_TRY(epx_routing_assign(request));
    for (int r = 0; r < plan->num_ranks; r++)
        epx_direct_post_arrival(direct, request, r);
    request->phase = AWAIT_RECORDS;
    return EPX_SUCCESS;
}

/* Poisons what the others will fill: only this rank reads it, and is through with the last
 * routing. */
static void poison_window(struct epx_plan *plan)
{
    epx_poison(plan->matrix, (size_t)plan->num_ranks * epx_count_words(plan->count_shape) *
                                 sizeof(*plan->matrix));
    epx_poison(plan->records, (size_t)plan->num_ranks * (size_t)plan->shape.max_tokens *
                                  epx_record_bytes(plan->record_shape));
}

static int begin(struct epx_direct *direct, struct epx_request *request, int *moved)
{
    int weighted;

    if (request->phase == EPX_PHASE_POST)
        poison_window(request->route->plan);
    EPX_TRY(epx_direct_handshake(request, &weighted, moved));
    if (!*moved)
        return EPX_SUCCESS;
    epx_routing_count(request);
    store_counts(direct, request);
    return EPX_SUCCESS;
}

static int step(struct epx_direct *direct, struct epx_request *request, int *moved)
{
    switch (request->phase) {
    case AWAIT_COUNTS:
        request->waiting_for = counts_lack(direct, request);
        *moved = request->waiting_for < 0;
        return *moved ? store_records(direct, request) : EPX_SUCCESS;
    case AWAIT_RECORDS:
        request->waiting_for = records_lack(direct, request);
        *moved = request->waiting_for < 0;
        return *moved ? epx_routing_finish(request) : EPX_SUCCESS;
    default: return begin(direct, request, moved);
    }
}

int epx_route_tokens_direct(struct epx_request *request, int *moved)
{
    return epx_routing_keep(request, step(epx_direct_of(request), request, moved));
}
