/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_calls.c - calls of CUDA's runtime about memory. */
#include <stdlib.h>
#include <string.h>

#include "emulation/runtime/driver.h"
#include "emulation/runtime/errors.h"
#include "emulation/streams/graphs.h"
#include "emulation/runtime/known_memory.h"
#include "emulation/streams/works.h"
#include "pretend/pretend_blocks.h"

static cudaError_t refuse_all(void)
{
    cudaError_t error;

    streams_lock();
    error = graph_refuse_all();
    streams_unlock();
    return error;
}

static cudaError_t make(void **memory, enum memory_kind kind, size_t bytes)
{
    size_t free_bytes, all;

    driver_has_context();
    cudaMemGetInfo(&free_bytes, &all);
    *memory = bytes && bytes <= free_bytes ? memory_make(kind, bytes, streams_device()) : NULL;
    return errors_note(*memory || !bytes ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    cudaError_t error = refuse_all();

    return error == cudaSuccess ? make(memory, MEMORY_ALONE, bytes) : errors_note(error);
}

/* Waits for the device, as CUDA does. */
cudaError_t cudaFree(void *memory)
{
    cudaError_t error = refuse_all();

    driver_has_context();
    if (error != cudaSuccess || !memory)
        return errors_note(error);
    streams_lock();
    streams_drain_device(streams_device());
    streams_unlock();
    return errors_note(memory_free(memory, MEMORY_ALONE, MEMORY_OF_POOL));
}

/* The memory is there at once. */
cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return make(memory, MEMORY_OF_POOL, bytes);
}

static void free_pooled(void *memory)
{
    memory_free(memory, MEMORY_OF_POOL, MEMORY_OF_POOL);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    struct range range;
    cudaError_t error;

    if (!memory)
        return cudaSuccess;
    if (!memory_find(memory, &range) || range.start != memory || range.kind > MEMORY_OF_POOL)
        return errors_note(cudaErrorInvalidValue);
    if (range.kind == MEMORY_ALONE)
        return cudaFree(memory);
    stream = streams_of(stream);
    streams_lock();
    error = graph_queue(stream, works_call(free_pooled, memory));
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    *pool = driver_pool(device);
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t least)
{
    (void)pool;
    (void)least;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    cudaError_t error = refuse_all();

    (void)flags;
    return error == cudaSuccess ? make(memory, MEMORY_OF_HOST, bytes) : errors_note(error);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *memory)
{
    cudaError_t error = refuse_all();

    if (error != cudaSuccess || !memory)
        return errors_note(error);
    return errors_note(memory_free(memory, MEMORY_OF_HOST, MEMORY_OF_HOST));
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    struct range range;

    (void)flags;
    if (memory_find(memory, &range))
        return errors_note(cudaErrorHostMemoryAlreadyRegistered);
    memory_note((struct range){memory, bytes, MEMORY_REGISTERED, streams_device()});
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **address, void *memory, unsigned flags)
{
    struct range range;

    (void)flags;
    if (!memory_find(memory, &range))
        return errors_note(cudaErrorInvalidValue);
    *address = memory;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    return errors_note(memory_forget(memory, MEMORY_REGISTERED));
}

static int is_known(const void *memory)
{
    struct range range;

    return memory_find(memory, &range);
}

/* As CUDA does, takes what memory of the host holds now unless it is pinned, and waits if the copy
 * goes to such memory. */
static cudaError_t queue_copy(void *to, const void *from, size_t bytes, cudaStream_t stream,
                              int waits)
{
    unsigned long long id;
    int captured;
    cudaError_t error;

    streams_lock();
    captured = graph_status(stream, &id) != cudaStreamCaptureStatusNone;
    error = graph_queue(stream, captured || is_known(from) ? works_copy(to, from, bytes)
                                                           : works_copy_of(to, from, bytes));
    if (error == cudaSuccess && !captured && (waits || !is_known(to)))
        streams_drain(stream);
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    return bytes ? queue_copy(to, from, bytes, streams_of(stream), 0) : cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t error = refuse_all();

    (void)kind;
    if (error != cudaSuccess || !bytes)
        return errors_note(error);
    return queue_copy(to, from, bytes, streams_of(NULL), 1);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    cudaError_t error;

    stream = streams_of(stream);
    streams_lock();
    error = graph_queue(stream, works_set(to, value, bytes));
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    cudaError_t error = refuse_all();

    return error == cudaSuccess ? cudaMemsetAsync(to, value, bytes, NULL) : errors_note(error);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address)
{
    struct range range;

    memset(attributes, 0, sizeof(*attributes));
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2; /* cudaInvalidDeviceId */
    if (!memory_find(address, &range))
        return cudaSuccess;
    attributes->device = range.device;
    attributes->type = range.kind <= MEMORY_OPENED ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->devicePointer = (void *)(uintptr_t)address;
    if (range.kind > MEMORY_OPENED)
        attributes->hostPointer = (void *)(uintptr_t)address;
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
    char name[PRETEND_NAME_BYTES];
    size_t bytes;

    _Static_assert(sizeof(handle->reserved) == sizeof(name), "a name fits in a handle");
    if (!pretend_block_look(memory, &bytes, name))
        return errors_note(cudaErrorInvalidValue);
    memcpy(handle->reserved, name, sizeof(name));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags)
{
    (void)flags;
    *memory = pretend_block_open(handle.reserved);
    if (!*memory)
        return errors_note(cudaErrorInvalidResourceHandle);
    memory_note((struct range){*memory, 1, MEMORY_OPENED, streams_device()});
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    cudaError_t error = memory_forget(memory, MEMORY_OPENED);

    if (error == cudaSuccess)
        pretend_block_close(memory);
    return errors_note(error);
}
