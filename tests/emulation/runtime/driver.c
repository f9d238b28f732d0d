/* SPDX-License-Identifier: BSD-3-Clause */
/* driver.c - some calls of CUDA's driver. libcuda.so.1 has no more of them than are asked for by
 * name. */
#include "emulation/runtime/driver.h"

#include <cuda.h>
#include <string.h>

#include "emulation/streams/graphs.h"
#include "emulation/runtime/known_memory.h"
#include "emulation/device/settings.h"
#include "emulation/streams/works.h"

static char pools[SETTINGS_MOST_GPUS], contexts[SETTINGS_MOST_GPUS];
static _Thread_local int has_context;

void driver_has_context(void)
{
    has_context = 1;
}

cudaMemPool_t driver_pool(int device)
{
    return (cudaMemPool_t)(void *)&pools[device];
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
    *context = has_context ? (CUcontext)(void *)&contexts[streams_device()] : NULL;
    return CUDA_SUCCESS;
}

static CUresult tell(CUpointer_attribute attribute, void *data, const struct range *range)
{
    int is_device = range->kind <= MEMORY_OPENED;

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = is_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)data = 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = range->device; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = (CUdeviceptr)(uintptr_t)range->start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = range->bytes; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = range->kind == MEMORY_ALONE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = range->kind == MEMORY_OF_POOL ? driver_pool(range->device) : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(int *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                       CUdeviceptr address)
{
    struct range range;

    if (!memory_find((void *)(uintptr_t)address, &range))
        return CUDA_ERROR_INVALID_VALUE;
    return tell(attribute, data, &range);
}

/* Leaves what it cannot tell as it is. */
CUresult CUDAAPI cuPointerGetAttributes(unsigned num, CUpointer_attribute *attributes, void **data,
                                        CUdeviceptr address)
{
    struct range range;

    if (!memory_find((void *)(uintptr_t)address, &range))
        return CUDA_SUCCESS;
    for (unsigned i = 0; i < num; i++)
        tell(attributes[i], data[i], &range);
    return CUDA_SUCCESS;
}

static CUresult queue(CUstream handle, struct work *work)
{
    cudaStream_t stream = streams_of(handle);
    cudaError_t error;

    streams_lock();
    error = graph_queue(stream, work);
    streams_unlock();
    return (CUresult)error;
}

CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned flags)
{
    flags &= ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
    if (flags != CU_STREAM_WAIT_VALUE_GEQ && flags != CU_STREAM_WAIT_VALUE_EQ)
        return CUDA_ERROR_NOT_SUPPORTED;
    return queue(stream, works_wait_value((const uint64_t *)(uintptr_t)address, value,
                                          flags == CU_STREAM_WAIT_VALUE_EQ));
}

CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags)
{
    (void)flags;
    return queue(stream, works_write_value((uint64_t *)(uintptr_t)address, value));
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

/* A node's handle is what it does. */
CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    const struct work *work = (const struct work *)(const void *)node;
    const struct emulated_kernel *launch;

    if (!works_is_kernel(work))
        return CUDA_ERROR_INVALID_VALUE;
    launch = works_launch(work);
    memset(params, 0, sizeof(*params));
    params->gridDimX = launch->blocks.x;
    params->gridDimY = launch->blocks.y;
    params->gridDimZ = launch->blocks.z;
    params->blockDimX = launch->threads.x;
    params->blockDimY = launch->threads.y;
    params->blockDimZ = launch->threads.z;
    params->sharedMemBytes = (unsigned)launch->shared_bytes;
    return CUDA_SUCCESS;
}

#define CALL(function)                                                                             \
    {                                                                                              \
#function, (void *)(uintptr_t)function                                                     \
    }

void *driver_call(const char *name)
{
    static const struct {
        const char *name;
        void *call;
    } calls[] = {CALL(cuCtxGetCurrent),           CALL(cuPointerGetAttribute),
                 CALL(cuPointerGetAttributes),    CALL(cuStreamWaitValue64),
                 CALL(cuStreamWriteValue64),      CALL(cuModuleGetLoadingMode),
                 CALL(cuGraphKernelNodeGetParams)};

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strcmp(calls[i].name, name) == 0)
            return calls[i].call;
    return NULL;
}
