/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * launch.h - an operation on device memory from its call to its completion; the operations of
 * struct epx_device_ops.
 */
#ifndef EPX_COLL_DEVICE_LAUNCH_H
#define EPX_COLL_DEVICE_LAUNCH_H

#include "core/request.h"

int epx_device_launch(struct epx_request *request);
int epx_device_poll(struct epx_request *request, int *moved);
int epx_device_ended(const struct epx_request *request);
int epx_device_wait_enqueue(struct epx_request *request, EPX_Stream stream);

#endif
