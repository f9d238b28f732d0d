/* SPDX-License-Identifier: BSD-3-Clause */
/* ground_device.h - the grounds on device memory. */
#ifndef EPX_COLL_DEVICE_GROUND_DEVICE_H
#define EPX_COLL_DEVICE_GROUND_DEVICE_H

#include "coll/ground.h"

extern const struct epx_ground epx_ground_device_direct;
extern const struct epx_ground epx_ground_device_staged;

#endif
