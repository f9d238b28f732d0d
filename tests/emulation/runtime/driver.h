/* SPDX-License-Identifier: BSD-3-Clause */
/* driver.h - calls of CUDA's driver that the runtime hands out. */
#ifndef DRIVER_H
#define DRIVER_H

#include <cuda_runtime_api.h>

/* A call, by its name; NULL if it is not emulated. */
void *driver_call(const char *name);
/* The runtime has made a context for this thread. */
void driver_has_context(void);
/* The memory pool of a device. */
cudaMemPool_t driver_pool(int device);

#endif
