/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * user_memory.h - whether kernels can use the memory that a caller gives them: an access that
 * faults would cost the whole process its CUDA context.
 */
#ifndef EPX_COLL_DEVICE_USER_MEMORY_H
#define EPX_COLL_DEVICE_USER_MEMORY_H

#include "coll/device/device.h"
#include "transport/module.h"

/* Finds the driver's call that the functions below make. */
int epx_user_memory_init(struct epx_device *device);

/* EPX_ERR_BUFFER unless all bytes of the buffers are memory of the device, which may be used. */
int epx_user_memory_check(const struct epx_device *device, const struct epx_device_buffer *buffers,
                          int num);

/* The bytes from an address, which was checked or is of EPX_Alloc_mem, to the end of its
 * allocation; INT64_MAX if that is not known. In the scope of the device. */
int64_t epx_user_memory_bytes(const struct epx_device *device, const void *address);

#endif
