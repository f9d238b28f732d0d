/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_device.c - what Python's half asks of CUDA itself: copies on a stream, and which capture a
 * stream is in. The driver is found when it is first needed, so that the same file works where
 * there is none.
 */
#include "glue.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* CUDA's driver API, in its own types: CUdeviceptr is a 64-bit number, CUresult and
 * CUstreamCaptureStatus are ints. */
static struct driver {
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, EPX_Stream stream);
    int (*fill)(uint64_t to, unsigned value, size_t count, EPX_Stream stream);
    int (*find_capture)(EPX_Stream stream, int *status, uint64_t *id, void *graph,
                        void *dependencies, size_t *num_dependencies);
    int (*get_context)(void **context);
    int (*set_context)(void *context);
    int is_there;
} driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);

    if (!symbol)
        driver.is_there = 0;
    memcpy(function, &symbol, sizeof(symbol));
}

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return;
    driver.is_there = 1;
    find(library, "cuMemcpyDtoDAsync_v2", &driver.copy);
    find(library, "cuMemsetD32Async", &driver.fill);
    find(library, "cuStreamGetCaptureInfo_v2", &driver.find_capture);
    find(library, "cuCtxGetCurrent", &driver.get_context);
    find(library, "cuCtxSetCurrent", &driver.set_context);
}

static int ask_driver(void)
{
    pthread_once(&once, load);
    return driver.is_there
               ? EPX_SUCCESS
               : epx_python_fail(EPX_ERR_CUDA, "libcuda.so.1 lacks what the Python package calls");
}

static int outcome(int error, const char *what)
{
    return error == 0 ? EPX_SUCCESS : epx_python_fail(EPX_ERR_CUDA, "%s: error %d", what, error);
}

/* The context of this thread, which made a communicator on device memory just now. */
int epx_python_device_context(void **context)
{
    EPX_PYTHON_TRY(ask_driver());
    return outcome(driver.get_context(context), "cuCtxGetCurrent");
}

/* Gives the context to a thread that has none yet, as those of autograd when they begin. */
int epx_python_device_enter(void *context)
{
    void *current = NULL;

    EPX_PYTHON_TRY(outcome(driver.get_context(&current), "cuCtxGetCurrent"));
    return current ? EPX_SUCCESS : outcome(driver.set_context(context), "cuCtxSetCurrent");
}

int epx_python_device_copy(void *to, const void *from, size_t bytes, EPX_Stream stream)
{
    if (bytes == 0)
        return EPX_SUCCESS;
    EPX_PYTHON_TRY(ask_driver());
    return outcome(driver.copy((uintptr_t)to, (uintptr_t)from, bytes, stream), "cuMemcpyDtoDAsync");
}

int epx_python_device_zero(int32_t *word, EPX_Stream stream)
{
    EPX_PYTHON_TRY(ask_driver());
    return outcome(driver.fill((uintptr_t)word, 0, 1, stream), "cuMemsetD32Async");
}

/* The capture that the stream is in, 0 if it is in none. */
int epx_python_device_capture(EPX_Stream stream, uint64_t *capture)
{
    enum { CAPTURE_ACTIVE = 1 };
    int status = 0;
    uint64_t id = 0;

    EPX_PYTHON_TRY(ask_driver());
    EPX_PYTHON_TRY(outcome(driver.find_capture(stream, &status, &id, NULL, NULL, NULL),
                           "cuStreamGetCaptureInfo"));
    *capture = status == CAPTURE_ACTIVE ? id : 0;
    return EPX_SUCCESS;
}
