/* SPDX-License-Identifier: BSD-3-Clause */
/* kept_counts.h - counts of a persistent alltoallv in device memory of the library. */
#ifndef EPX_COLL_DEVICE_DIRECT_KEPT_COUNTS_H
#define EPX_COLL_DEVICE_DIRECT_KEPT_COUNTS_H

#include "coll/device/device.h"

/* The operation of struct epx_device_ops. */
int epx_device_keep_counts(struct epx_device *device, const struct epx_call *call,
                           struct epx_kept **kept);
/* Frees the memory of all of them; who still holds one frees the struct. */
void epx_device_free_counts(struct epx_device *device);

#endif
