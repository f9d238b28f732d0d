/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pretend_streams.c - what the proxy calls of CUDA, without a GPU. The linker takes these
 * definitions before those of the runtime library.
 */
#include "pretend/pretend_streams.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/device/device.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/driver_call.h"

enum { PRETENDED_ERROR = 719 };

struct work {
    void (*step)(void *);
    void *argument;
    struct work *next;
};

/* Work stands in the queue until it is done. */
struct CUstream_st {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, **end;
    int ends;
    pthread_t thread;
};

struct write {
    uint64_t *word, value;
};

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static atomic_int objects, threads, scope_calls, calls_left, writes_fail, device_lost;
static pthread_key_t entered; /* not NULL in a thread that pretend_threads counts */
static pthread_once_t once = PTHREAD_ONCE_INIT;

void pretend_reset(void)
{
    calls_left = writes_fail = device_lost = 0;
}

void pretend_fail_call(int n)
{
    calls_left = n;
}

void pretend_fail_writes(void)
{
    writes_fail = 1;
}

void pretend_lose_device(void)
{
    device_lost = 1;
}

int pretend_objects(void)
{
    return objects;
}

int pretend_threads(void)
{
    return threads;
}

int pretend_scope_calls(void)
{
    return scope_calls;
}

static int fails(void)
{
    return calls_left > 0 && atomic_fetch_sub(&calls_left, 1) == 1;
}

static struct work *await_work(cudaStream_t stream)
{
    struct work *work;

    pthread_mutex_lock(&stream->lock);
    while (!stream->first && !stream->ends)
        pthread_cond_wait(&stream->changed, &stream->lock);
    work = stream->first;
    pthread_mutex_unlock(&stream->lock);
    return work;
}

static void remove_first(cudaStream_t stream)
{
    struct work *work = stream->first;

    pthread_mutex_lock(&stream->lock);
    stream->first = work->next;
    if (!stream->first)
        stream->end = &stream->first;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    free(work);
}

static void *run_stream(void *argument)
{
    cudaStream_t stream = argument;
    struct work *work;

    while ((work = await_work(stream))) {
        work->step(work->argument);
        remove_first(stream);
    }
    return NULL;
}

void pretend_queue(cudaStream_t stream, void (*step)(void *), void *argument)
{
    struct work *work = calloc(1, sizeof(*work));

    work->step = step;
    work->argument = argument;
    pthread_mutex_lock(&stream->lock);
    *stream->end = work;
    stream->end = &work->next;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static void write_word(void *argument)
{
    struct write *write = argument;

    __atomic_store_n(write->word, write->value, __ATOMIC_RELEASE);
    free(write);
}

CUresult CUDAAPI pretend_write(CUstream stream, CUdeviceptr word, cuuint64_t value, unsigned flags)
{
    struct write *write;

    (void)flags;
    if (writes_fail)
        return (CUresult)PRETENDED_ERROR;
    write = malloc(sizeof(*write));
    *write = (struct write){(uint64_t *)(uintptr_t)word, value};
    pretend_queue(stream, write_word, write);
    return CUDA_SUCCESS;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *result, unsigned flags, int priority)
{
    cudaStream_t stream;

    (void)flags;
    (void)priority;
    if (fails())
        return cudaErrorUnknown;
    stream = calloc(1, sizeof(*stream));
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    stream->end = &stream->first;
    pthread_create(&stream->thread, NULL, run_stream, stream);
    objects++;
    *result = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (fails())
        return cudaErrorUnknown;
    pthread_mutex_lock(&stream->lock);
    while (stream->first)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    int busy;

    pthread_mutex_lock(&stream->lock);
    busy = stream->first != NULL;
    pthread_mutex_unlock(&stream->lock);
    return busy ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->ends = 1;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
    objects--;
    return cudaSuccess;
}

/* Fills the memory with what nobody wrote. */
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    if (fails())
        return cudaErrorMemoryAllocation;
    *memory = malloc(bytes);
    memset(*memory, 0x5a, bytes);
    objects++;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMalloc(memory, bytes);
}

cudaError_t cudaFree(void *memory)
{
    objects -= memory != NULL;
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    if (fails())
        return cudaErrorUnknown;
    memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMalloc(memory, bytes);
}

static void free_memory(void *memory)
{
    cudaFree(memory);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    pretend_queue(stream, free_memory, memory);
    return cudaSuccess;
}

static void copy_bytes(void *argument)
{
    struct copy *copy = argument;

    memcpy(copy->to, copy->from, copy->bytes);
    free(copy);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    struct copy *copy;

    if (fails() || kind != cudaMemcpyDeviceToDevice)
        return cudaErrorUnknown;
    copy = malloc(sizeof(*copy));
    *copy = (struct copy){to, from, bytes};
    pretend_queue(stream, copy_bytes, copy);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -1;
    return fails() ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaGetDevice(int *ordinal)
{
    *ordinal = 0;
    return device_lost ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal)
{
    (void)ordinal;
    scope_calls++;
    return cudaSuccess;
}

/* A thread ends that has entered and not left. */
static void count_end(void *value)
{
    (void)value;
    threads--;
}

static void make_key(void)
{
    pthread_key_create(&entered, count_end);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    static _Thread_local enum cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
    enum cudaStreamCaptureMode before = current;

    threads += (*mode == cudaStreamCaptureModeRelaxed) - (before == cudaStreamCaptureModeRelaxed);
    current = *mode;
    scope_calls++;
    pthread_once(&once, make_key);
    pthread_setspecific(entered, current == cudaStreamCaptureModeRelaxed ? &current : NULL);
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)event;
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

static CUresult CUDAAPI get_loading_mode(CUmoduleLoadingMode *mode)
{
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

cudaError_t epx_find_driver_call(const char *name, unsigned version, void **call)
{
    union {
        void *data;
        CUresult(CUDAAPI *function)(CUmoduleLoadingMode *mode);
    } found = {.function = get_loading_mode};

    (void)version;
    *call = found.data;
    return strcmp(name, "cuModuleGetLoadingMode") == 0 ? cudaSuccess : cudaErrorSymbolNotFound;
}

int epx_fail_cuda(cudaError_t error, const char *call)
{
    int code = error == cudaErrorMemoryAllocation ? EPX_ERR_NO_MEM : EPX_ERR_CUDA;

    return epx_fail(code, "%s: error %d", call, (int)error);
}
