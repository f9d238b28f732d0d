/* SPDX-License-Identifier: BSD-3-Clause */
/* multiprocessors.c - how many multiprocessors kernels can have. */
#include "transport/cuda/multiprocessors.h"

#include <cuda.h>
#include <limits.h>
#include <pthread.h>

#include "transport/cuda/driver_call.h"

#if CUDA_VERSION >= 12040

enum { GREEN_CONTEXTS_SINCE = 12040 };

static struct {
    CUresult(CUDAAPI *current)(CUcontext *context);
    CUresult(CUDAAPI *of_context)(CUcontext context, CUdevResource *resource,
                                  CUdevResourceType type);
    CUresult(CUDAAPI *of_green)(CUgreenCtx context, CUdevResource *resource,
                                CUdevResourceType type);
    CUresult(CUDAAPI *green_of)(CUstream stream, CUgreenCtx *context);
} driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A driver that lacks a call has no green contexts. */
static void *find(const char *name)
{
    void *call = NULL;

    if (epx_find_driver_call(name, GREEN_CONTEXTS_SINCE, &call) == cudaSuccess)
        return call;
    cudaGetLastError();
    return NULL;
}

static void find_all(void)
{
    *(void **)&driver.current = find("cuCtxGetCurrent");
    *(void **)&driver.of_context = find("cuCtxGetDevResource");
    *(void **)&driver.of_green = find("cuGreenCtxGetDevResource");
    *(void **)&driver.green_of = find("cuStreamGetGreenCtx");
}

/* Takes what CUDA said of a resource if it is less. */
static int least_of(CUresult result, const CUdevResource *resource, int all)
{
    int sms = (int)resource->sm.smCount;

    return result == CUDA_SUCCESS && sms > 0 && sms < all ? sms : all;
}

static int ask_context(CUcontext context)
{
    CUdevResource resource = {.type = CU_DEV_RESOURCE_TYPE_INVALID};

    return least_of(driver.of_context(context, &resource, CU_DEV_RESOURCE_TYPE_SM), &resource,
                    INT_MAX);
}

/* Asks about a context once in each thread: operations on default streams come here. */
static int count_context_sms(int all)
{
    static _Thread_local CUcontext last;
    static _Thread_local int last_sms;
    CUcontext context = NULL;

    pthread_once(&once, find_all);
    if (!driver.current || !driver.of_context || driver.current(&context) != CUDA_SUCCESS ||
        !context)
        return all;
    if (context != last) {
        last_sms = ask_context(context);
        last = context;
    }
    return last_sms < all ? last_sms : all;
}

int epx_count_stream_sms(cudaStream_t stream, int all)
{
    CUdevResource resource = {.type = CU_DEV_RESOURCE_TYPE_INVALID};
    CUgreenCtx green = NULL;

    if (epx_is_default_stream(stream))
        return count_context_sms(all);
    pthread_once(&once, find_all);
    if (!driver.green_of || !driver.of_green || driver.green_of(stream, &green) != CUDA_SUCCESS ||
        !green)
        return all;
    return least_of(driver.of_green(green, &resource, CU_DEV_RESOURCE_TYPE_SM), &resource, all);
}

#else

static int count_context_sms(int all)
{
    return all;
}

int epx_count_stream_sms(cudaStream_t stream, int all)
{
    (void)stream;
    return all;
}

#endif

cudaError_t epx_count_sms(int ordinal, int *sms)
{
    cudaError_t error = cudaDeviceGetAttribute(sms, cudaDevAttrMultiProcessorCount, ordinal);

    if (error == cudaSuccess)
        *sms = count_context_sms(*sms);
    return error;
}
