/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.h - kernels of the tests: one that holds a stream back, one that stands for a user's work. */
#ifndef GPU_H
#define GPU_H

#include "epx.h"

#ifdef __cplusplus
extern "C" {
#endif
/* Queues a kernel that ends when *flag, pinned host memory, is not 0 any more. */
void gpu_hold(const volatile int *flag, EPX_Stream stream);
/* Queues a kernel that copies bytes between two buffers in device memory. */
void gpu_copy(void *to, const void *from, size_t bytes, EPX_Stream stream);
#ifdef __cplusplus
}
#endif

#endif
