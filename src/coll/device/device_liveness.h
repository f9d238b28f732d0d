/* SPDX-License-Identifier: BSD-3-Clause */
/* device_liveness.h - how a communicator on device memory ends. */
#ifndef EPX_COLL_DEVICE_DEVICE_LIVENESS_H
#define EPX_COLL_DEVICE_DEVICE_LIVENESS_H

#include "coll/device/device.h"

extern const struct epx_liveness_ops epx_device_liveness;

/* Asks CUDA, at few of its calls, for an error: in a lost context nothing ever completes. */
int epx_device_check(const struct epx_device *device, struct epx_request *request);
/* Copies from device to pinned memory; returns whether the copy came in time. */
int epx_device_copy(struct epx_device *device, void *to, const void *from, size_t bytes);
/* Gives the communicator up after an error in the middle of an operation; returns the code. */
int epx_device_end_halfway(struct epx_device *device, int rc);
/* Finishes the communicator, after an outcome that has the abort word. */
void epx_device_note_abort(struct epx_device *device, const struct epx_outcome *outcome);

#endif
