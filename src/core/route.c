/* SPDX-License-Identifier: BSD-3-Clause */
/* route.c - the route: its life, its place in the list of its communicator, its view. */
#include "core/route.h"

#include <stdlib.h>
#include <string.h>

struct epx_route *epx_route_allocate(void)
{
    struct epx_route *route = calloc(1, sizeof(*route));

    if (!route)
        return NULL;
    route->references = 1;
    route->view.size = sizeof(route->view);
    return route;
}

void epx_route_retain(struct epx_route *route)
{
    epx_lock();
    route->references++;
    epx_unlock();
}

void epx_route_release(struct epx_route *route)
{
    int references;

    if (!route)
        return;
    epx_lock();
    references = --route->references;
    epx_unlock();
    if (references)
        return;
    if (epx_comm_keeps_memory(route->comm)) { /* kept: late messages may still arrive in its plan */
        route->next = route->comm->buried;
        route->comm->buried = route;
        return;
    }
    if (route->plan_free)
        route->plan_free(route);
    epx_comm_release(route->comm);
    free(route);
}

void epx_route_enlist(struct epx_route *route)
{
    epx_lock();
    route->next = route->comm->routes;
    route->comm->routes = route;
    epx_handle_add(&route->handle, EPX_HANDLE_ROUTE);
    epx_unlock();
}

void epx_route_unlist(struct epx_route *route)
{
    struct epx_route **link = &route->comm->routes;

    epx_lock();
    while (*link && *link != route)
        link = &(*link)->next;
    if (*link)
        *link = route->next;
    epx_handle_remove(&route->handle);
    epx_unlock();
}

int epx_route_copy_view(const struct epx_route *route, EPX_Route_view *view)
{
    size_t size;

    EPX_FAIL_IF(!view, EPX_ERR_ARG, "view is NULL");
    size = view->size;
    EPX_FAIL_IF(size < offsetof(EPX_Route_view, expert_ends), EPX_ERR_ARG,
                "view.size is %zu, want sizeof(EPX_Route_view), %zu", size, sizeof(route->view));
    memcpy(view, &route->view, size < sizeof(route->view) ? size : sizeof(route->view));
    view->size = size;
    return EPX_SUCCESS;
}

int64_t epx_route_weights_per_row(const struct epx_route *route)
{
    return route->attr.layout == EPX_RANK_MAJOR ? route->attr.top_k : 1;
}
