/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_order.c - the order of a communicator's operations across streams. An operation on another
 * stream than the operation before waits for that one: the stream waits until the word of that
 * one's completion has its number or a later one, since an event after every operation would cost
 * two microseconds each. In a capture, where events cost nothing, events order the operations of
 * the capture; a graph is ordered against the rest by whoever launches it.
 *
 * A capture has a side of its own (struct epx_side), so that its events meet neither another
 * capture nor what is called outside. The side's stream runs nothing: it only marks the capture. A
 * side belongs to the capture that its stream is in; the first operation of the capture takes the
 * stream there. The side is free again when CUDA has ended that capture.
 */
#include "coll/device/device_order.h"

#include <stdlib.h>

#include "base/jitter.h"
#include "core/route.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/driver_call.h"
#include "transport/cuda/multiprocessors.h"

static int init_side(struct epx_side *side)
{
    EPX_TRY_CUDA(cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking));
    EPX_TRY_CUDA(cudaEventCreateWithFlags(&side->fork, cudaEventDisableTiming));
    EPX_TRY_CUDA(cudaEventCreateWithFlags(&side->join, cudaEventDisableTiming));
    EPX_TRY_CUDA(cudaEventCreateWithFlags(&side->order, cudaEventDisableTiming));
    return EPX_SUCCESS;
}

static void free_side(struct epx_side *side)
{
    if (!side)
        return;
    if (side->order)
        cudaEventDestroy(side->order);
    if (side->join)
        cudaEventDestroy(side->join);
    if (side->fork)
        cudaEventDestroy(side->fork);
    if (side->stream)
        cudaStreamDestroy(side->stream);
    free(side);
}

static int create_side(struct epx_side **result)
{
    struct epx_side *side = calloc(1, sizeof(*side));
    int rc;

    EPX_FAIL_IF(!side, EPX_ERR_NO_MEM, "no memory for a stream");
    rc = init_side(side);
    if (rc != EPX_SUCCESS) {
        free_side(side);
        return rc;
    }
    *result = side;
    return EPX_SUCCESS;
}

int epx_device_init_order(struct epx_device *device)
{
    union {
        void *data;
        epx_wait_value *function;
    } wait, write;

    EPX_TRY_CUDA(epx_find_driver_call("cuStreamWaitValue64", EPX_ANY_DRIVER, &wait.data));
    EPX_TRY_CUDA(epx_find_driver_call("cuStreamWriteValue64", EPX_ANY_DRIVER, &write.data));
    device->wait_value = wait.function;
    device->write_value = write.function;
    return EPX_SUCCESS;
}

void epx_device_end_order(struct epx_device *device)
{
    while (device->captures) {
        struct epx_side *side = device->captures;

        device->captures = side->next;
        free_side(side);
    }
}

static cudaError_t ask_capture(EPX_Stream stream, enum cudaStreamCaptureStatus *status,
                               unsigned long long *id)
{
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, status, id, NULL, NULL, NULL, NULL);
#else
    return cudaStreamGetCaptureInfo(stream, status, id);
#endif
}

int epx_device_find_capture(EPX_Stream stream, unsigned long long *capture)
{
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0;

    EPX_TRY_CUDA(ask_capture(stream, &status, &id));
    EPX_FAIL_IF(status == cudaStreamCaptureStatusInvalidated, EPX_ERR_CUDA,
                "the capture of the stream was invalidated");
    *capture = status == cudaStreamCaptureStatusActive ? id : 0;
    return EPX_SUCCESS;
}

/* The device of a stream. For one that cannot be asked, and before CUDA 12.8, assumes the right
 * one: if that is wrong, the launch fails. */
static int device_of_stream(EPX_Stream stream, int ordinal)
{
#if CUDART_VERSION >= 12080
    int found;

    if (!epx_is_default_stream(stream)) {
        if (cudaStreamGetDevice(stream, &found) == cudaSuccess)
            return found;
        cudaGetLastError();
    }
#endif
    (void)stream;
    return ordinal;
}

/* The stream of the last operation outside captures was checked then: unlike a handle, an id is
 * never used again. What a default stream stands for may be another each time. */
int epx_device_check_stream(const struct epx_device *device, EPX_Stream stream,
                            unsigned long long *id)
{
    const cudaError_t error = cudaStreamGetId(stream, id);
    int ordinal, sms;

    if (error == cudaSuccess && device->last_number && *id == device->last_stream &&
        !epx_is_default_stream(stream))
        return EPX_SUCCESS;
    ordinal = device_of_stream(stream, device->ordinal);
    EPX_FAIL_IF(ordinal != device->ordinal, EPX_ERR_ARG,
                "the stream is of device %d, the communicator's is %d", ordinal, device->ordinal);
    sms = epx_count_stream_sms(stream, device->gpu.blocks);
    EPX_FAIL_IF(
        sms < device->gpu.blocks, EPX_ERR_ARG,
        "the stream has %d multiprocessors, the communicator's kernels want %d at once; make "
        "it with epx_max_sms of at most %d",
        sms, device->gpu.blocks, sms);
    EPX_TRY_CUDA(error);
    return EPX_SUCCESS;
}

/* The side of the capture; else one that is free, or NULL. */
static int look_for_side(const struct epx_device *device, unsigned long long capture,
                         struct epx_side **found)
{
    *found = NULL;
    for (struct epx_side *side = device->captures; side; side = side->next) {
        enum cudaStreamCaptureStatus status;
        unsigned long long id = 0;

        EPX_TRY_CUDA(ask_capture(side->stream, &status, &id));
        if (status == cudaStreamCaptureStatusActive && id == capture) {
            *found = side;
            return EPX_SUCCESS;
        }
        if (status == cudaStreamCaptureStatusNone) {
            side->has_last = 0;
            *found = side;
        }
    }
    return EPX_SUCCESS;
}

static int find_side(struct epx_device *device, unsigned long long capture)
{
    EPX_TRY(look_for_side(device, capture, &device->side));
    if (device->side)
        return EPX_SUCCESS;
    EPX_TRY(create_side(&device->side));
    device->side->next = device->captures;
    device->captures = device->side;
    return EPX_SUCCESS;
}

/* The word grows modulo 2^64, in which the driver compares. */
static int await_number(const struct epx_device *device, int completion, uint32_t number,
                        EPX_Stream stream)
{
    CUresult error =
        device->wait_value(stream, (CUdeviceptr)(uintptr_t)&device->completions[completion].word,
                           (cuuint64_t)number << 32, CU_STREAM_WAIT_VALUE_GEQ);

    if (error != CUDA_SUCCESS) /* the runtime numbers errors as the driver does */
        return epx_fail_cuda((cudaError_t)error, "cuStreamWaitValue64");
    return EPX_SUCCESS;
}

int epx_device_queue_behind(struct epx_device *device, EPX_Stream stream,
                            unsigned long long capture, unsigned long long id)
{
    if (capture) {
        EPX_TRY(find_side(device, capture));
        if (device->side->has_last)
            EPX_TRY_CUDA(cudaStreamWaitEvent(stream, device->side->order, 0));
        return EPX_SUCCESS;
    }
    if (device->last_number && id != device->last_stream)
        EPX_TRY(await_number(device, device->last_completion, device->last_number, stream));
    device->last_stream = id;
    return EPX_SUCCESS;
}

int epx_device_queue_wait(const struct epx_device *device, const struct epx_request *request,
                          EPX_Stream stream)
{
    unsigned long long capture;

    if (request->captured) {
        EPX_TRY_CUDA(cudaStreamWaitEvent(stream, device->events[request->completion], 0));
        return EPX_SUCCESS;
    }
    EPX_TRY(epx_device_find_capture(stream, &capture));
    EPX_FAIL_IF(capture, EPX_ERR_REQUEST, "the request was made outside the stream's capture");
    return await_number(device, request->completion, request->number, stream);
}

/* Makes the side's stream wait for what was queued on the user's so far. */
static int fork_stream(const struct epx_side *side, EPX_Stream stream)
{
    EPX_TRY_CUDA(cudaEventRecord(side->fork, stream));
    EPX_TRY_CUDA(cudaStreamWaitEvent(side->stream, side->fork, 0));
    return EPX_SUCCESS;
}

static int join_stream(const struct epx_side *side, EPX_Stream stream)
{
    EPX_TRY_CUDA(cudaEventRecord(side->join, side->stream));
    EPX_TRY_CUDA(cudaStreamWaitEvent(stream, side->join, 0));
    return EPX_SUCCESS;
}

/* Takes the side's stream into the capture, unless an operation before has done so. */
static int bind_side(const struct epx_side *side, EPX_Stream stream, unsigned long long capture)
{
    unsigned long long bound;

    EPX_TRY(epx_device_find_capture(side->stream, &bound));
    if (bound == capture)
        return EPX_SUCCESS;
    EPX_TRY(fork_stream(side, stream));
    return join_stream(side, stream);
}

int epx_device_queue_end(struct epx_device *device, const struct epx_request *request,
                         unsigned long long capture)
{
    EPX_Stream stream = request->call.stream;

    if (!capture) {
        device->last_completion = request->completion;
        device->last_number = request->number;
        return EPX_SUCCESS;
    }
    EPX_TRY_CUDA(cudaEventRecord(device->events[request->completion], stream));
    EPX_TRY_CUDA(cudaEventRecord(device->side->order, stream)); /* the event above may be reused */
    device->side->has_last = 1;
    return bind_side(device->side, stream, capture);
}
