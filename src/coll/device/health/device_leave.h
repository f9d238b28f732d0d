/* SPDX-License-Identifier: BSD-3-Clause */
/* device_leave.h - how a rank leaves a communicator on device memory that has ended, to go on in
 * another one. */
#ifndef EPX_COLL_DEVICE_HEALTH_DEVICE_LEAVE_H
#define EPX_COLL_DEVICE_HEALTH_DEVICE_LEAVE_H

#include "coll/device/device.h"

/* Operations of struct epx_device_ops. */
int epx_device_leave_peers(struct epx_device *device);
int epx_device_run_step(const struct epx_device *device, int (*step)(void *argument),
                        void *argument);

#endif
