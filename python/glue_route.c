/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_route.c - routes for Python. */
#include "glue.h"

#include <limits.h>
#include <stdlib.h>

const size_t epx_python_route_attr_bytes = sizeof(struct epx_python_route_attr);

static int check_is_int(const char *name, int64_t value)
{
    if (value < INT_MIN || value > INT_MAX)
        return epx_python_fail(EPX_ERR_ARG, "%s is %lld, which is no int", name, (long long)value);
    return EPX_SUCCESS;
}

static int check_are_ints(const struct epx_python_route_attr *attr)
{
    EPX_PYTHON_TRY(check_is_int("experts", attr->num_experts));
    EPX_PYTHON_TRY(check_is_int("top_k", attr->top_k));
    EPX_PYTHON_TRY(check_is_int("max_tokens", attr->max_tokens));
    return check_is_int("alignment", attr->alignment);
}

static EPX_Route_attr attr_of(const struct epx_python_route_attr *from)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;

    attr.num_experts = (int)from->num_experts;
    attr.top_k = (int)from->top_k;
    attr.max_tokens = (int)from->max_tokens;
    attr.alignment = (int)from->alignment;
    attr.recv_capacity = from->capacity;
    attr.layout = (EPX_Layout)from->layout;
    attr.overflow = (EPX_Overflow)from->overflow;
    attr.zero_unused = (int)from->zero_unused;
    attr.rows_per_expert = from->rows_per_expert;
    attr.max_row_bytes = from->max_row_bytes;
    return attr;
}

static int fill(struct epx_python_route *route, const EPX_Route_attr *attr)
{
    const EPX_Route_view view = EPX_ROUTE_VIEW_INIT;

    route->view = view;
    EPX_PYTHON_TRY(
        epx_python_check(route->owner, EPX_Route_create(attr, route->owner->comm, &route->route)));
    EPX_PYTHON_TRY(epx_python_check(route->owner, EPX_Route_get_view(route->route, &route->view)));
    route->top_k = attr->top_k;
    route->layout = attr->layout;
    route->zero_unused = attr->zero_unused;
    route->capacity = route->view.capacity;
    return EPX_SUCCESS;
}

static void give_back(int number, struct epx_python_route *route)
{
    epx_python_table_remove(&epx_python_routes, number);
    pthread_mutex_destroy(&route->reading);
    for (int i = 0; i < 2; i++)
        epx_python_device_unmark(&route->copied[i].event);
    free(route);
}

int epx_python_route_create(const struct epx_python_route_attr *from, int *number)
{
    struct epx_python_comm *comm;
    struct epx_python_route *route;
    EPX_Route_attr attr;
    int rc;

    EPX_PYTHON_TRY(epx_python_comm(from->comm, &comm));
    EPX_PYTHON_TRY(check_are_ints(from));
    attr = attr_of(from);
    route = calloc(1, sizeof(*route));
    *number = route ? epx_python_table_add(&epx_python_routes, route) : -1;
    if (*number < 0) {
        free(route);
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for a route");
    }
    pthread_mutex_init(&route->reading, NULL);
    route->owner = comm;
    route->comm = (int)from->comm;
    rc = fill(route, &attr);
    if (rc != EPX_SUCCESS)
        give_back(*number, route);
    return rc;
}

int epx_python_route_free(int number)
{
    struct epx_python_route *route;

    EPX_PYTHON_TRY(epx_python_route(number, &route));
    epx_python_settle_view(route, NULL);
    EPX_PYTHON_TRY(epx_python_check(route->owner, EPX_Route_free(&route->route)));
    give_back(number, route);
    return EPX_SUCCESS;
}

/* Capacity at creation, local experts, the first of them. */
int epx_python_route_shape(int number, int64_t capacity_experts_first[3])
{
    struct epx_python_route *route;

    EPX_PYTHON_TRY(epx_python_route(number, &route));
    capacity_experts_first[0] = route->view.capacity;
    capacity_experts_first[1] = route->view.num_local_experts;
    capacity_experts_first[2] = route->view.first_local_expert;
    return EPX_SUCCESS;
}

int epx_python_route_set_capacity(int number, int64_t capacity)
{
    struct epx_python_route *route;

    EPX_PYTHON_TRY(epx_python_route(number, &route));
    if (capacity == route->capacity)
        return EPX_SUCCESS;
    EPX_PYTHON_TRY(epx_python_check(route->owner, EPX_Route_set_capacity(route->route, capacity)));
    route->capacity = capacity;
    return EPX_SUCCESS;
}
