/* SPDX-License-Identifier: BSD-3-Clause */
/* device_calls.c - calls of CUDA's runtime about errors, devices, kernels and the driver. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulation/runtime/driver.h"
#include "emulation/runtime/errors.h"
#include "emulation/runtime/known_memory.h"
#include "emulation/streams/graphs.h"
#include "emulation/device/settings.h"
#include "emulation/streams/works.h"

enum { MOST_KERNELS = 1024, SHARED_BYTES = 48 << 10, MOST_SHARED_BYTES = 227 << 10 };
static const size_t all_bytes = (size_t)1 << 34;

static _Thread_local cudaError_t last_error;

/* Dynamic memory of a block that kernels may have; SHARED_BYTES for those that are not here. */
static struct {
    const void *kernel;
    int bytes;
} allowed[MOST_KERNELS];
static int num_allowed;

cudaError_t errors_note(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    static _Thread_local char text[64];

    if (error == cudaSuccess)
        return "no error";
    if (error == cudaErrorMemoryAllocation)
        return "out of memory";
    snprintf(text, sizeof(text), "error %d of the emulation of CUDA", (int)error);
    return text;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return cudaGetErrorString(error);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = settings_gpus();
    return errors_note(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = streams_device();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= settings_gpus())
        return errors_note(cudaErrorInvalidDevice);
    streams_use_device(device);
    driver_has_context();
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (device < 0 || device >= settings_gpus())
        return errors_note(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof(*properties));
    properties->major = 9;
    properties->warpSize = EMULATED_WARP;
    properties->multiProcessorCount = settings_sms(device);
    properties->totalGlobalMem = all_bytes;
    snprintf(properties->name, sizeof(properties->name), "emulated GPU %d", device);
    memcpy(properties->uuid.bytes, &device, sizeof(device));
    properties->uuid.bytes[sizeof(device)] = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    if (device < 0 || device >= settings_gpus())
        return errors_note(cudaErrorInvalidDevice);
    *value = attribute == cudaDevAttrMultiProcessorCount      ? settings_sms(device)
             : attribute == cudaDevAttrComputeCapabilityMajor ? 9
                                                              : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int device,
                                      int peer)
{
    (void)attribute;
    *value = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(enum cudaFlushGPUDirectRDMAWritesTarget target,
                                               enum cudaFlushGPUDirectRDMAWritesScope scope)
{
    (void)target;
    (void)scope;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    size_t used = memory_bytes(streams_device());

    *total = all_bytes;
    *unused = used < all_bytes ? all_bytes - used : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error;

    streams_lock();
    error = graph_refuse_all();
    if (error == cudaSuccess)
        streams_drain_device(streams_device());
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    memset(attributes, 0, sizeof(*attributes));
    attributes->ptxVersion = 90;
    return kernel ? cudaSuccess : errors_note(cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    int i = 0;

    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value > MOST_SHARED_BYTES)
        return errors_note(cudaErrorInvalidValue);
    streams_lock();
    while (i < num_allowed && allowed[i].kernel != kernel)
        i++;
    if (i == MOST_KERNELS)
        abort();
    allowed[i].kernel = kernel;
    allowed[i].bytes = value;
    num_allowed += i == num_allowed;
    streams_unlock();
    return cudaSuccess;
}

static size_t allowed_bytes(const void *kernel)
{
    for (int i = 0; i < num_allowed; i++)
        if (allowed[i].kernel == kernel)
            return (size_t)allowed[i].bytes;
    return SHARED_BYTES;
}

static cudaError_t check_launch(const struct emulated_kernel *launch, cudaStream_t stream)
{
    if (launch->blocks.x == 0 || launch->threads.x == 0 || launch->threads.x > 1024 ||
        launch->blocks.y * launch->blocks.z * launch->threads.y * launch->threads.z != 1)
        return cudaErrorInvalidConfiguration;
    if (launch->shared_bytes > allowed_bytes(launch->kernel))
        return cudaErrorInvalidValue;
    return stream->device == streams_device() ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

void emulated_launch(const struct emulated_kernel *launch)
{
    cudaStream_t stream = streams_of(launch->stream);
    cudaError_t error;

    streams_lock();
    error = check_launch(launch, stream);
    if (error == cudaSuccess)
        error = graph_queue(stream, works_kernel(launch, stream->device));
    else
        launch->release(launch->arguments);
    streams_unlock();
    errors_note(error);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **call, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    (void)version;
    (void)flags;
    *call = driver_call(name);
    *result = *call ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *call ? cudaSuccess : errors_note(cudaErrorSymbolNotFound);
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **call, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result)
{
    return cudaGetDriverEntryPointByVersion(name, call, 0, flags, result);
}
