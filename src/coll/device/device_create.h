/* SPDX-License-Identifier: BSD-3-Clause */
/* device_create.h - makes and frees what a communicator on device memory has. */
#ifndef EPX_COLL_DEVICE_DEVICE_CREATE_H
#define EPX_COLL_DEVICE_DEVICE_CREATE_H

#include "coll/device/device.h"

/* The operations of struct epx_ground, and of struct epx_device_ops. */
int epx_device_create(struct epx_transport *transport);
void epx_device_free(struct epx_transport *transport);
void epx_device_retire(struct epx_device *device);

#endif
