/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_scope.h - what the calling thread is while the library calls CUDA: on the communicator's
 * device, and not bound by captures, its own or another thread's. Any thread may call, with another
 * device current; what the library asks and allocates belongs to no capture.
 */
#ifndef EPX_TRANSPORT_CUDA_DEVICE_SCOPE_H
#define EPX_TRANSPORT_CUDA_DEVICE_SCOPE_H

#include <cuda_runtime_api.h>

struct epx_comm;

struct epx_device_scope {
    int previous; /* device, -1 = the same */
    enum cudaStreamCaptureMode mode;
};

/* Every enter that succeeds has its leave; scopes may nest. */
cudaError_t epx_device_enter(int ordinal, struct epx_device_scope *scope);
void epx_device_leave(const struct epx_device_scope *scope);
/* Collective, agreed, as the step is: runs it on the current device, of which *ordinal is kept. */
int epx_device_run(struct epx_comm *comm, int *ordinal, int (*step)(void *state), void *state);

/*
 * Whether an event has come: cudaSuccess, cudaErrorNotReady, or what was lost. An event that a
 * capture keeps from being asked is not ready. Leaves the thread's last error as it was.
 */
cudaError_t epx_device_query(cudaEvent_t event);

#endif
