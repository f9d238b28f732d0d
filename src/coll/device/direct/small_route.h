/* SPDX-License-Identifier: BSD-3-Clause */
/* small_route.h - whether operations on a route are small, which all ranks find alike. */
#ifndef EPX_COLL_DEVICE_DIRECT_SMALL_ROUTE_H
#define EPX_COLL_DEVICE_DIRECT_SMALL_ROUTE_H

#include "coll/device/device.h"
#include "kernels/device_plan.h"

/* Whether a row, of so many bytes in all its fields, is moved in units smaller than 16 bytes. */
int epx_is_odd_row(int64_t row_bytes);
/* Whether an operation on the route is small but for its rows. */
int epx_has_few_pairs(const struct epx_device *device, const struct epx_plan_shape *shape);
/* Whether it is worth to be, with rows so long; only where it has few pairs. */
int epx_small_pays(const struct epx_device *device, const struct epx_plan_shape *shape,
                   enum epx_verb verb, int64_t row_bytes);
/* Whether the routings of the route are small. */
int epx_is_small_route(const struct epx_device *device, const struct epx_device_plan *plan);

#endif
