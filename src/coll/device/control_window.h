/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control_window.h - the window that a communicator on device memory has for itself.
 */
#ifndef EPX_COLL_DEVICE_CONTROL_WINDOW_H
#define EPX_COLL_DEVICE_CONTROL_WINDOW_H

#include "coll/device/device.h"

/* Collective, agreed: the device's window and where things lie in it. */
int epx_control_window_create(struct epx_device *device);

#endif
