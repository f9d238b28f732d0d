/* SPDX-License-Identifier: BSD-3-Clause */
/* device_scope.c - the device and the capture mode of a thread while the library calls CUDA. */
#include "transport/cuda/device_scope.h"

#include "core/agree.h"
#include "transport/cuda/cuda_errors.h"

static cudaError_t make_current(int ordinal, struct epx_device_scope *scope)
{
    int current;
    cudaError_t error = cudaGetDevice(&current);

    if (error != cudaSuccess || current == ordinal)
        return error;
    error = cudaSetDevice(ordinal);
    if (error == cudaSuccess)
        scope->previous = current;
    return error;
}

cudaError_t epx_device_enter(int ordinal, struct epx_device_scope *scope)
{
    cudaError_t error;

    scope->previous = -1;
    scope->mode = cudaStreamCaptureModeRelaxed;
    error = cudaThreadExchangeStreamCaptureMode(&scope->mode);
    if (error != cudaSuccess)
        return error;
    error = make_current(ordinal, scope);
    if (error != cudaSuccess)
        epx_device_leave(scope);
    return error;
}

void epx_device_leave(const struct epx_device_scope *scope)
{
    enum cudaStreamCaptureMode mode = scope->mode;

    if (scope->previous >= 0)
        cudaSetDevice(scope->previous);
    cudaThreadExchangeStreamCaptureMode(&mode);
}

int epx_device_run(struct epx_comm *comm, int *ordinal, int (*step)(void *state), void *state)
{
    struct epx_device_scope scope;
    cudaError_t error = cudaGetDevice(ordinal);
    int rc;

    if (error == cudaSuccess)
        error = epx_device_enter(*ordinal, &scope);
    if (error != cudaSuccess)
        return epx_comm_agree(comm, epx_fail_cuda(error, "cudaGetDevice"));
    rc = step(state);
    epx_device_leave(&scope);
    return rc;
}

cudaError_t epx_device_new_stream(cudaStream_t *stream)
{
    int least, greatest;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);

    return error == cudaSuccess
               ? cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest)
               : error;
}

cudaError_t epx_device_query(cudaEvent_t event)
{
    cudaError_t before = cudaPeekAtLastError(), error = cudaEventQuery(event);

    if (error != cudaSuccess && before == cudaSuccess)
        cudaGetLastError();
    if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread)
        return cudaErrorNotReady;
    return error;
}
