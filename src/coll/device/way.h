/* SPDX-License-Identifier: BSD-3-Clause */
/* way.h - the way of the operation that is being queued. */
#ifndef EPX_COLL_DEVICE_WAY_H
#define EPX_COLL_DEVICE_WAY_H

#include "coll/device/tuning.h"

/* Decides the way of an operation, or of its half that is under way, and keeps it in the device
 * until the next operation is queued: the kernels of a second phase go the same way. */
const struct epx_way *epx_decide_way(const struct epx_request *request);
/* What decides about it. */
struct epx_shape epx_shape_of(const struct epx_request *request);

#endif
