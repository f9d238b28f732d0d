/* SPDX-License-Identifier: BSD-3-Clause */
/* route_plan.h - what the plans of both memory spaces take from the route, and show of it. */
#ifndef EPX_COLL_ROUTE_PLAN_H
#define EPX_COLL_ROUTE_PLAN_H

#include "core/route.h"
#include "kernels/plan_shape.h"

struct epx_plan_shape epx_plan_shape_of(const struct epx_route *route);

/* The capacity of this rank: the one asked for, at most the worst case; EPX_ERR_COUNT if that is
 * more than an int32_t counts. */
int epx_route_find_capacity(struct epx_route *route, const struct epx_plan_shape *shape);

/* owner[e] becomes the rank of expert e. */
void epx_find_owners(int32_t *owner, int32_t num_experts, int32_t num_ranks);

/* Fills the view of the route. */
void epx_route_show_view(struct epx_route *route, const struct epx_plan_shape *shape,
                         const struct epx_plan_view *shown);

#endif
