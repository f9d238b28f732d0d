/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pretend_streams.h - what the proxy calls of CUDA, without a GPU: device memory is the host's, and
 * a stream is a queue that a thread of its own executes in order.
 */
#ifndef PRETEND_STREAMS_H
#define PRETEND_STREAMS_H

#include <cuda.h>
#include <cuda_runtime_api.h>

/* Queues work of a transport: the step runs on the stream's thread, when all before it is done. */
void pretend_queue(cudaStream_t stream, void (*step)(void *), void *argument);
/* The driver's cuStreamWriteValue64: a release store. */
CUresult CUDAAPI pretend_write(CUstream stream, CUdeviceptr word, cuuint64_t value, unsigned flags);

/* Lets all calls work, until one of the next two functions is called. */
void pretend_reset(void);
/* Lets the n-th call from now that can fail do so, counted from 1. */
void pretend_fail_call(int n);
/* Lets writes on streams fail; lets the device be lost. */
void pretend_fail_writes(void);
void pretend_lose_device(void);
/* Streams and allocations that were not given back. */
int pretend_objects(void);
/* Threads behind epx_device_enter that have neither left, by epx_device_leave, nor ended. */
int pretend_threads(void);
/* Calls of CUDA by epx_device_enter and epx_device_leave. */
int pretend_scope_calls(void);

#endif
