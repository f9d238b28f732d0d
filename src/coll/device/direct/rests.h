/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rests.h - an operation in two phases, seen from the host: its call queues the kernels that send,
 * and leaves the rest, the kernels that take, until somebody waits for the operation, or the next
 * one is called. kernels/protocol/phases.cuh has the kernels.
 */
#ifndef EPX_COLL_DEVICE_DIRECT_RESTS_H
#define EPX_COLL_DEVICE_DIRECT_RESTS_H

#include "coll/device/device.h"

/* The phase that the call of an operation queues; if that is not all, notes that a rest is left. */
int32_t epx_first_phase(const struct epx_request *request, const struct epx_way *way);
/* Whether the operation that was queued last, in this capture, left a rest; then it is kept in
 * mind. */
int epx_device_leaves_rest(struct epx_device *device, struct epx_request *request,
                           unsigned long long capture);
/* Queues what the last operation has left, before the next one. Who waits for an operation whose
 * capture has ended is told. */
int epx_device_queue_last_rest(struct epx_device *device);

#endif
