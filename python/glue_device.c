/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_device.c - what an operation asks of CUDA itself: a context, where memory lies, copies on
 * a stream, marks behind them for other streams, and which capture a stream is in; and memory for
 * what the host of a rank tells those of others.
 */
#include "glue_cuda.h"

static int outcome(int error, const char *what)
{
    return error == 0 ? EPX_SUCCESS : epx_python_fail(EPX_ERR_CUDA, "%s: error %d", what, error);
}

static int ask(const struct epx_python_cuda **cuda)
{
    *cuda = epx_python_cuda();
    return *cuda ? EPX_SUCCESS
                 : epx_python_fail(EPX_ERR_CUDA, "libcuda.so.1 lacks what the package calls");
}

/* Makes the context of a GPU of this process, which torch and JAX use too, current until
 * epx_python_device_leave. */
int epx_python_device_choose(int ordinal, int *device)
{
    const struct epx_python_cuda *cuda;
    void *context;
    int rc;

    EPX_PYTHON_TRY(ask(&cuda));
    EPX_PYTHON_TRY(outcome(cuda->init(0), "cuInit"));
    if (cuda->get_device(device, ordinal) != 0)
        return epx_python_fail(EPX_ERR_ARG, "this process sees no GPU %d", ordinal);
    EPX_PYTHON_TRY(outcome(cuda->retain(&context, *device), "cuDevicePrimaryCtxRetain"));
    rc = outcome(cuda->push(context), "cuCtxPushCurrent");
    if (rc != EPX_SUCCESS)
        cuda->release(*device);
    return rc;
}

void epx_python_device_leave(int device)
{
    epx_python_device_pop();
    epx_python_cuda()->release(device);
}

/* The context of this thread, which made a communicator on device memory just now. */
int epx_python_device_context(void **context)
{
    const struct epx_python_cuda *cuda;

    EPX_PYTHON_TRY(ask(&cuda));
    return outcome(cuda->get_context(context), "cuCtxGetCurrent");
}

/* Gives the context to a thread that has none yet, as those of autograd when they begin. */
int epx_python_device_enter(void *context)
{
    const struct epx_python_cuda *cuda;
    void *current = NULL;

    EPX_PYTHON_TRY(ask(&cuda));
    EPX_PYTHON_TRY(outcome(cuda->get_context(&current), "cuCtxGetCurrent"));
    return current ? EPX_SUCCESS : outcome(cuda->set_context(context), "cuCtxSetCurrent");
}

/* Makes the context current until the pop: the stream 0 is that of the current one. */
int epx_python_device_push(void *context)
{
    const struct epx_python_cuda *cuda;

    EPX_PYTHON_TRY(ask(&cuda));
    return outcome(cuda->push(context), "cuCtxPushCurrent");
}

void epx_python_device_pop(void)
{
    void *popped;

    epx_python_cuda()->pop(&popped);
}

/* The device that the memory lies on, -1 if CUDA does not tell. */
int epx_python_device_of(const void *memory)
{
    enum { ATTRIBUTE_DEVICE_ORDINAL = 9 };
    const struct epx_python_cuda *cuda = epx_python_cuda();
    int ordinal = -1;

    if (!cuda || cuda->get_attribute(&ordinal, ATTRIBUTE_DEVICE_ORDINAL, (uintptr_t)memory) != 0)
        return -1;
    return ordinal;
}

int epx_python_device_copy(void *to, const void *from, size_t bytes, EPX_Stream stream)
{
    const struct epx_python_cuda *cuda;

    EPX_PYTHON_TRY(ask(&cuda));
    if (bytes == 0)
        return EPX_SUCCESS;
    return outcome(cuda->copy((uintptr_t)to, (uintptr_t)from, bytes, stream), "cuMemcpyDtoDAsync");
}

/* Allocates memory on the GPU of the current context, and copies as many bytes of the host into it;
 * epx_python_device_free is for the caller. */
int epx_python_device_place(void **memory, const void *host, size_t bytes)
{
    const struct epx_python_cuda *cuda;
    uint64_t made;
    int rc;

    EPX_PYTHON_TRY(ask(&cuda));
    EPX_PYTHON_TRY(outcome(cuda->allocate(&made, bytes), "cuMemAlloc"));
    rc = outcome(cuda->copy_now(made, (uintptr_t)host, bytes), "cuMemcpy");
    if (rc == EPX_SUCCESS)
        *memory = (void *)(uintptr_t)made;
    else
        cuda->free(made);
    return rc;
}

int epx_python_device_fetch(void *host, const void *memory, size_t bytes)
{
    return outcome(epx_python_cuda()->copy_now((uintptr_t)host, (uintptr_t)memory, bytes),
                   "cuMemcpy");
}

void epx_python_device_free(void *memory)
{
    epx_python_cuda()->free((uintptr_t)memory);
}

int epx_python_device_zero(int32_t *word, EPX_Stream stream)
{
    const struct epx_python_cuda *cuda;

    EPX_PYTHON_TRY(ask(&cuda));
    return outcome(cuda->fill((uintptr_t)word, 0, 1, stream), "cuMemsetD32Async");
}

static int record(void **event, EPX_Stream stream)
{
    enum { WITHOUT_TIMES = 2 };
    const struct epx_python_cuda *cuda = epx_python_cuda();

    if (!*event)
        EPX_PYTHON_TRY(outcome(cuda->create_event(event, WITHOUT_TIMES), "cuEventCreate"));
    return outcome(cuda->record_event(*event, stream), "cuEventRecord");
}

/* Marks the end of what the stream has now, by the event, which is made if it is NULL. */
int epx_python_device_mark(void *context, void **event, EPX_Stream stream)
{
    int rc;

    EPX_PYTHON_TRY(epx_python_device_push(context));
    rc = record(event, stream);
    epx_python_device_pop();
    return rc;
}

/* The stream waits for what the event marks; the host does not. */
int epx_python_device_await(void *context, void *event, EPX_Stream stream)
{
    int rc;

    EPX_PYTHON_TRY(epx_python_device_push(context));
    rc = outcome(epx_python_cuda()->await_event(stream, event, 0), "cuStreamWaitEvent");
    epx_python_device_pop();
    return rc;
}

/* Takes an event that was never made, too; streams that wait for what it marks still do. */
void epx_python_device_unmark(void **event)
{
    if (*event)
        epx_python_cuda()->destroy_event(*event);
    *event = NULL;
}

/* The capture that the stream is in, 0 if it is in none. */
int epx_python_device_capture(EPX_Stream stream, uint64_t *capture)
{
    enum { CAPTURE_ACTIVE = 1 };
    const struct epx_python_cuda *cuda;
    int status = 0;
    uint64_t id = 0;

    EPX_PYTHON_TRY(ask(&cuda));
    EPX_PYTHON_TRY(outcome(cuda->find_capture(stream, &status, &id, NULL, NULL, NULL),
                           "cuStreamGetCaptureInfo"));
    *capture = status == CAPTURE_ACTIVE ? id : 0;
    return EPX_SUCCESS;
}
