/* SPDX-License-Identifier: BSD-3-Clause */
/* way_device.h - the one door to the verbs on device memory. */
#ifndef EPX_COLL_DEVICE_WAY_DEVICE_H
#define EPX_COLL_DEVICE_WAY_DEVICE_H

#include "core/request.h"

/* Decides the way of an operation, or of its half that is under way, and queues its kernels. The
 * device keeps the way until the next operation is queued: a second phase goes the same way. */
int epx_device_queue(const struct epx_request *request);

#endif
