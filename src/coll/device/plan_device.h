/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_device.h - the plan of a route on device memory. */
#ifndef EPX_COLL_DEVICE_PLAN_DEVICE_H
#define EPX_COLL_DEVICE_PLAN_DEVICE_H

#include "coll/device/device.h"
#include "core/route.h"
#include "kernels/device_plan.h"

/* Collective, agreed: see struct epx_ground. */
int epx_device_route_create(struct epx_route *route);
/* Local: fills what an operation writes in its route's window with a pattern, on its stream. */
int epx_device_route_poison(const struct epx_request *request);
/* The plan of a route, for kernels. */
const struct epx_device_plan *epx_device_plan_of(const struct epx_request *request);

#endif
