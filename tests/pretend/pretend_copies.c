/* SPDX-License-Identifier: BSD-3-Clause */
/* pretend_copies.c - some of CUDA's runtime without a GPU. */
#include "pretend/pretend_copies.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_QUEUED = 4096, MOST_STREAMS = 16, MOST_PINNED = 64 };

struct work {
    void *to;
    const void *from;
    size_t bytes;
};

struct CUstream_st {
    struct work queue[MOST_QUEUED];
    int first, num;
};

static struct pinned {
    const char *start;
    size_t bytes;
} pinned[MOST_PINNED];

static cudaStream_t streams[MOST_STREAMS];
static int gpu, sms, num_visible = 1;

void pretend_gpu(int number, int num_sms)
{
    gpu = number;
    sms = num_sms;
}

void pretend_visible(int num_gpus)
{
    num_visible = num_gpus;
}

static void pin(const void *start, size_t bytes)
{
    for (int i = 0; i < MOST_PINNED; i++)
        if (!pinned[i].start) {
            pinned[i] = (struct pinned){start, bytes};
            return;
        }
    abort();
}

static void unpin(const void *start)
{
    for (int i = 0; start && i < MOST_PINNED; i++)
        if (pinned[i].start == start) {
            pinned[i].start = NULL;
            return;
        }
}

int pretend_is_pinned(const void *start, size_t bytes)
{
    const char *first = start;

    for (int i = 0; i < MOST_PINNED; i++)
        if (pinned[i].start && first >= pinned[i].start &&
            first + bytes <= pinned[i].start + pinned[i].bytes)
            return 1;
    return 0;
}

static void do_next(cudaStream_t stream)
{
    struct work *work = &stream->queue[stream->first % MOST_QUEUED];

    memcpy(work->to, work->from, work->bytes);
    stream->first++;
    stream->num--;
}

static void queue(cudaStream_t stream, struct work work)
{
    if (stream->num == MOST_QUEUED)
        do_next(stream);
    stream->queue[(stream->first + stream->num++) % MOST_QUEUED] = work;
}

void pretend_drain(void)
{
    for (int i = 0; i < MOST_STREAMS; i++)
        while (streams[i] && streams[i]->num)
            do_next(streams[i]);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    for (int i = 0; i < MOST_STREAMS; i++)
        if (!streams[i]) {
            *stream = streams[i] = calloc(1, sizeof(**stream));
            return *stream ? cudaSuccess : cudaErrorMemoryAllocation;
        }
    return cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    while (stream->num)
        do_next(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaStreamSynchronize(stream);
    for (int i = 0; i < MOST_STREAMS; i++)
        if (streams[i] == stream)
            streams[i] = NULL;
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)event;
    return cudaErrorInvalidValue; /* nobody makes events */
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    queue(stream, (struct work){.to = to, .from = from, .bytes = bytes});
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    *memory = calloc(1, bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    cudaStreamSynchronize(stream);
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    *memory = calloc(1, bytes);
    if (*memory)
        pin(*memory, bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *memory)
{
    unpin(memory);
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    pin(memory, bytes);
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **address, void *memory, unsigned flags)
{
    (void)flags;
    *address = memory;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    unpin(memory);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = num_visible;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    int number = device == 0 ? gpu : (gpu + device) % num_visible; /* this rank's is the first */

    memset(properties, 0, sizeof(*properties));
    properties->major = 9;
    memcpy(properties->uuid.bytes, &number, sizeof(number));
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)device;
    *value = attribute == cudaDevAttrMultiProcessorCount ? sms : 0;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    (void)mode;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an error of the pretended CUDA";
}
