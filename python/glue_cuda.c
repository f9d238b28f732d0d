/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_cuda.c - opens CUDA's driver. */
#include "glue_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static struct epx_python_cuda cuda;
static int is_usable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* In the order of the members, all of which are pointers to functions. */
static const char *const names[] = {"cuInit",
                                    "cuDeviceGet",
                                    "cuDevicePrimaryCtxRetain",
                                    "cuDevicePrimaryCtxRelease_v2",
                                    "cuCtxPushCurrent_v2",
                                    "cuCtxPopCurrent_v2",
                                    "cuCtxGetCurrent",
                                    "cuCtxSetCurrent",
                                    "cuThreadExchangeStreamCaptureMode",
                                    "cuMemAlloc_v2",
                                    "cuMemFree_v2",
                                    "cuCtxSynchronize",
                                    "cuPointerGetAttribute",
                                    "cuMemcpyDtoDAsync_v2",
                                    "cuMemcpy",
                                    "cuMemsetD32Async",
                                    "cuEventCreate",
                                    "cuEventDestroy_v2",
                                    "cuEventRecord",
                                    "cuStreamWaitEvent",
                                    "cuStreamGetCaptureInfo_v2"};

enum { NUM_NAMES = sizeof(names) / sizeof(names[0]) };

_Static_assert(NUM_NAMES * sizeof(void *) == sizeof(cuda), "a name for each function");

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found[NUM_NAMES];

    if (!library)
        return;
    is_usable = 1;
    for (int i = 0; i < NUM_NAMES; i++) {
        found[i] = dlsym(library, names[i]);
        if (!found[i])
            is_usable = 0;
    }
    memcpy(&cuda, found, sizeof(cuda));
}

const struct epx_python_cuda *epx_python_cuda(void)
{
    pthread_once(&once, open_driver);
    return is_usable ? &cuda : NULL;
}
