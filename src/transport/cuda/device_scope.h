/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_scope.h - the state of the calling thread while the library calls CUDA: the communicator's
 * device is current, and no stream capture, this thread's or another's, forbids a call. So any
 * thread may call, whatever device it had, and what the library asks and allocates belongs to no
 * capture.
 */
#ifndef EPX_TRANSPORT_CUDA_DEVICE_SCOPE_H
#define EPX_TRANSPORT_CUDA_DEVICE_SCOPE_H

#include <cuda_runtime_api.h>

struct epx_comm;

struct epx_device_scope {
    int previous; /* device to go back to; -1 = the same one */
    enum cudaStreamCaptureMode mode;
};

/* Every enter that succeeds has its leave; scopes may nest. */
cudaError_t epx_device_enter(int ordinal, struct epx_device_scope *scope);
void epx_device_leave(const struct epx_device_scope *scope);
/* Collective and agreed, as step is: runs step on the current device, and sets *ordinal to that. */
int epx_device_run(struct epx_comm *comm, int *ordinal, int (*step)(void *state), void *state);

/*
 * Makes a stream for what the library queues while kernels of the user's streams may wait for it:
 * of the highest priority, so that it shares no hardware queue with streams of a lower one. In a
 * queue the first entry that waits holds up those of all other streams behind it.
 */
cudaError_t epx_device_new_stream(cudaStream_t *stream);

/*
 * Whether an event has come: cudaSuccess, cudaErrorNotReady, or an error. An event that may not be
 * asked because of a capture counts as not ready. Leaves the thread's last error as it was.
 */
cudaError_t epx_device_query(cudaEvent_t event);

#endif
