/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_view.c - copies what a routing's view shows into tensors of Python: the view shows the
 * latest routing alone, and a routing is a value in Python.
 */
#include "glue.h"

#include <string.h>

static void copy_offsets(const EPX_Route_view *view, int num_ranks, int32_t *offsets)
{
    offsets[0] = 0;
    if (view->expert_ends)
        memcpy(offsets + 1, view->expert_ends, (size_t)view->num_local_experts * sizeof(*offsets));
    else
        memcpy(offsets + 1, view->rank_counts, (size_t)num_ranks * sizeof(*offsets));
}

/* Makes the first row of each rank of the rows that each has sent, which a capacity may clip. */
static void add_up(int32_t *offsets, int num_ranks, int64_t num_rows)
{
    for (int r = 1; r <= num_ranks; r++) {
        const int64_t end = (int64_t)offsets[r - 1] + offsets[r];

        offsets[r] = (int32_t)(end < num_rows ? end : num_rows);
    }
}

static void copy_row_experts(const struct epx_python_route *route, const struct epx_python_view *to)
{
    const size_t used = (size_t)(*route->view.num_rows * route->top_k);
    const size_t all = (size_t)(route->routed_capacity * route->top_k);

    memcpy(to->row_experts, route->view.row_expert_ids, used * sizeof(*to->row_experts));
    if (to->adds_up)
        memset(to->row_experts + used, -1, (all - used) * sizeof(*to->row_experts));
}

void epx_python_view_copy(const struct epx_python_route *route, const struct epx_python_view *to)
{
    const EPX_Route_view *view = &route->view;

    if (to->counts) /* NULL where there are no experts */
        memcpy(to->counts, view->expert_counts,
               (size_t)view->num_local_experts * sizeof(*to->counts));
    copy_offsets(view, route->owner->size, to->offsets);
    if (to->adds_up && !view->expert_ends)
        add_up(to->offsets, route->owner->size, *view->num_rows);
    if (view->row_expert_ids && to->row_experts)
        copy_row_experts(route, to);
}

/* Has the next routings write counts and offsets themselves, if one lies behind the other, and the
 * layout has them. */
int epx_python_view_set(struct epx_python_route *route, const struct epx_python_view *to)
{
    const EPX_Route_view *view = &route->view;
    const int is_whole = to->counts && to->offsets == to->counts + view->num_local_experts;
    int32_t *told = is_whole && view->expert_ends ? to->counts : NULL;

    if (told == route->told)
        return EPX_SUCCESS;
    EPX_PYTHON_TRY(epx_python_check(route->owner, EPX_Route_set_counts(route->route, told)));
    route->told = told;
    return EPX_SUCCESS;
}

static int copy_expert_major(const EPX_Route_view *view, const struct epx_python_view *to,
                             EPX_Stream stream)
{
    const size_t num_experts = (size_t)view->num_local_experts, bytes = sizeof(*to->counts);

    EPX_PYTHON_TRY(
        epx_python_device_copy(to->counts, view->expert_counts, num_experts * bytes, stream));
    return epx_python_device_copy(to->offsets, view->expert_ends - 1, (num_experts + 1) * bytes,
                                  stream);
}

static int copy_rank_major(const struct epx_python_route *route, const struct epx_python_view *to,
                           EPX_Stream stream)
{
    const EPX_Route_view *view = &route->view;
    const size_t bytes = sizeof(*to->counts);

    EPX_PYTHON_TRY(epx_python_device_copy(to->counts, view->expert_counts,
                                          (size_t)view->num_local_experts * bytes, stream));
    EPX_PYTHON_TRY(epx_python_device_zero(to->offsets, stream));
    EPX_PYTHON_TRY(epx_python_device_copy(to->offsets + 1, view->rank_counts,
                                          (size_t)route->owner->size * bytes, stream));
    if (!to->row_experts)
        return EPX_SUCCESS;
    return epx_python_device_copy(to->row_experts, view->row_expert_ids,
                                  (size_t)(route->capacity * route->top_k) * bytes, stream);
}

/* Queues the copies on the stream, behind the routing. EPX orders the next routing behind this one
 * but knows nothing of the copies, so that an event marks their end. */
int epx_python_view_enqueue(struct epx_python_route *route, const struct epx_python_view *to,
                            EPX_Stream stream)
{
    struct epx_python_copied *copied = &route->copied[route->capture != 0];
    int rc;

    EPX_PYTHON_TRY(epx_python_device_push(route->owner->context));
    rc = route->view.expert_ends ? copy_expert_major(&route->view, to, stream)
                                 : copy_rank_major(route, to, stream);
    epx_python_device_pop();
    EPX_PYTHON_TRY(rc);
    copied->capture = route->capture;
    return epx_python_device_mark(route->owner->context, &copied->event, stream);
}

/* Before the next routing is queued on a stream: it waits for the latest copies in its capture, or
 * in none, which may be on another stream. It cannot wait for those in another capture. */
int epx_python_view_await(const struct epx_python_route *route, EPX_Stream stream, uint64_t capture)
{
    const struct epx_python_copied *copied = &route->copied[capture != 0];

    if (!copied->event || copied->capture != capture)
        return EPX_SUCCESS;
    return epx_python_device_await(route->owner->context, copied->event, stream);
}
