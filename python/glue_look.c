/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_look.c - copies into tensors of Python what a route shows of its latest routing beside what
 * glue_view.c copies for every one.
 */
#include "glue.h"

#include <string.h>

const size_t epx_python_look_bytes = sizeof(struct epx_python_look);

/* What EPX has of a routing beside counts and offsets, and the bytes of it that are defined. */
struct part {
    const void *from;
    void *to;
    size_t bytes;
    size_t room; /* of the tensor */
};

enum { PARTS = 8 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void list_parts(const struct epx_python_look *look, const struct epx_python_route *route,
                       struct part parts[PARTS])
{
    const EPX_Route_view *view = &route->view;
    const size_t word = sizeof(int32_t), room = (size_t)look->capacity * word;
    const size_t top_k = (size_t)route->top_k;
    const size_t used =
        route->owner->on_device ? room : least((size_t)*view->num_rows * word, room);
    const size_t slots = (size_t)(route->num_tokens * route->top_k) * word;
    const size_t ranks = (size_t)route->owner->size * word;
    const struct part list[PARTS] = {
        {view->row_expert_ids, look->row_experts, used * top_k, room * top_k},
        {view->row_tokens, look->row_tokens, used, room},
        {view->row_ranks, look->row_ranks, used, room},
        {view->row_choices, look->row_choices, used, room},
        {view->rank_counts, look->rank_counts, ranks, ranks},
        {view->slots, look->slots, slots, slots},
        {view->required_rows, look->required_rows, sizeof(int64_t), sizeof(int64_t)},
        {view->overflow, look->overflow, word, word},
    };

    memcpy(parts, list, sizeof(list));
}

static int enqueue_parts(struct epx_python_route *route, const struct part parts[PARTS],
                         EPX_Stream stream)
{
    struct epx_python_copied *copied = &route->copied[route->capture != 0];
    int rc = EPX_SUCCESS;

    EPX_PYTHON_TRY(epx_python_device_push(route->owner->context));
    for (int i = 0; i < PARTS && rc == EPX_SUCCESS; i++)
        if (parts[i].from && parts[i].to)
            rc = epx_python_device_copy(parts[i].to, parts[i].from, parts[i].bytes, stream);
    epx_python_device_pop();
    EPX_PYTHON_TRY(rc);
    copied->capture = route->capture;
    return epx_python_device_mark(route->owner->context, &copied->event, stream);
}

static void copy_parts(const struct part parts[PARTS])
{
    for (int i = 0; i < PARTS; i++)
        if (parts[i].from && parts[i].to) {
            memset(parts[i].to, -1, parts[i].room);
            memcpy(parts[i].to, parts[i].from, parts[i].bytes);
        }
}

static int check_look(const struct epx_python_look *look, const struct epx_python_route *route)
{
    if (*look->key == 0 || *look->key != route->current || route->is_begun)
        return epx_python_fail(EPX_ERR_ROUTE, "view: the route has another routing than this one");
    if (look->capacity < 0 || look->capacity > route->routed_capacity)
        return epx_python_fail(EPX_ERR_COUNT, "view: capacity %lld, the routing has %lld",
                               (long long)look->capacity, (long long)route->routed_capacity);
    return EPX_SUCCESS;
}

/* Copies what the route shows of its latest routing, if that is the one that is wanted; local. */
int epx_python_look(const struct epx_python_look *look)
{
    struct epx_python_route *route;
    struct part parts[PARTS];

    EPX_PYTHON_TRY(epx_python_route(look->route, &route));
    epx_python_settle_view(route, NULL);
    EPX_PYTHON_TRY(check_look(look, route));
    if (route->owner->on_device)
        EPX_PYTHON_TRY(epx_python_device_enter(route->owner->context));
    list_parts(look, route, parts);
    if (route->owner->on_device)
        return enqueue_parts(route, parts, look->stream);
    copy_parts(parts);
    return EPX_SUCCESS;
}
