/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_windows.h - windows of device memory that no other rank reaches, for transports that
 * exchange messages.
 */
#ifndef EPX_TRANSPORT_CUDA_DEVICE_WINDOWS_H
#define EPX_TRANSPORT_CUDA_DEVICE_WINDOWS_H

#include <cuda_runtime_api.h>

#include "core/comm.h"

struct epx_device_windows {
    struct epx_comm *comm;
    int ordinal;         /* of the GPU */
    cudaStream_t stream; /* NULL = not opened */
    /* Set before open: memory is allocated by cudaMalloc, which others than CUDA can register or
     * map, unlike memory of a pool. Freeing it waits for the device, so it is kept for windows to
     * come. */
    int keeps;
    int next_number;
    struct epx_window *laid_aside; /* freed, but queued kernels may still use them */
    struct epx_window *kept;
};

/* Local, with the device current and its ordinal set; close takes what was never opened. */
int epx_device_windows_open(struct epx_device_windows *windows, struct epx_comm *comm);
void epx_device_windows_close(struct epx_device_windows *windows);
/* The operations of struct epx_transport_ops, of a state that begins with its windows. */
int epx_device_windows_create(void *state, size_t bytes, struct epx_window **window);
void epx_device_windows_free(void *state, struct epx_window *window);
void epx_device_windows_reclaim(void *state);
int epx_device_windows_fence(void *state, struct epx_window *window);

#endif
