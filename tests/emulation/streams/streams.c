/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.c - streams, and the thread that does what is queued on them and runs all kernels. */
#define _GNU_SOURCE
#include "emulation/streams/streams.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "emulation/device/blocks.h"
#include "emulation/device/checks.h"
#include "emulation/device/kernels.h"
#include "emulation/device/settings.h"
#include "emulation/streams/works.h"

enum { EMPTY_ROUNDS = 40, REST_US = 50 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct CUstream_st defaults[SETTINGS_MOST_GPUS];
static struct CUstream_st *streams; /* but the default ones */
static unsigned long long last_number, last_id = SETTINGS_MOST_GPUS;
static _Thread_local int current;

void streams_lock(void)
{
    pthread_mutex_lock(&lock);
}

void streams_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void streams_wait(void)
{
    pthread_cond_wait(&done, &lock);
}

int streams_device(void)
{
    return current;
}

void streams_use_device(int device)
{
    current = device;
}

/* Whether the default stream of a device has work that is older. */
static int follows_default(const struct CUstream_st *stream)
{
    const struct work *first = defaults[stream->device].first;

    return stream->is_blocking && first && first->number < stream->first->number;
}

/* Whether a stream that the default one waits for has work that is older. */
static int follows_blocking(const struct CUstream_st *stream)
{
    for (const struct CUstream_st *other = streams; other; other = other->next)
        if (other->is_blocking && other->device == stream->device && other->first &&
            other->first->number < stream->first->number)
            return 1;
    return 0;
}

static int is_default(const struct CUstream_st *stream)
{
    return stream >= defaults && stream < defaults + SETTINGS_MOST_GPUS;
}

/* Goes on with the first work of a stream. Returns whether it is done. */
static int run_first(struct CUstream_st *stream)
{
    struct work *work = stream->first;

    if (!work || (is_default(stream) ? follows_blocking(stream) : follows_default(stream)))
        return 0;
    if (!work->step(work)) {
        if (work->next)
            works_overtake(work, work->next);
        return 0;
    }
    stream->first = work->next;
    if (!stream->first)
        stream->end = &stream->first;
    work->release(work);
    pthread_cond_broadcast(&done);
    return 1;
}

static void free_destroyed(void)
{
    struct CUstream_st **link = &streams, *stream;

    while ((stream = *link)) {
        if (stream->is_destroyed && !stream->first) {
            *link = stream->next;
            free(stream);
        } else {
            link = &stream->next;
        }
    }
}

static int run_all(void)
{
    int moved = 0;

    for (int i = 0; i < SETTINGS_MOST_GPUS; i++)
        moved |= run_first(&defaults[i]);
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        while (run_first(stream))
            moved = 1;
    free_destroyed();
    return moved;
}

static int has_work(void)
{
    for (int i = 0; i < SETTINGS_MOST_GPUS; i++)
        if (defaults[i].first)
            return 1;
    for (const struct CUstream_st *stream = streams; stream; stream = stream->next)
        if (stream->first)
            return 1;
    return 0;
}

static void rest(int rounds)
{
    if (rounds < EMPTY_ROUNDS)
        sched_yield();
    else
        usleep(REST_US);
}

static void *run_devices(void *unused)
{
    int empty = 0, moved;

    (void)unused;
    checks_begin();
    blocks_seed(settings_seed());
    for (;;) {
        streams_lock();
        while (!has_work())
            pthread_cond_wait(&queued, &lock);
        moved = run_all();
        streams_unlock();
        moved |= kernels_run();
        empty = moved ? 0 : empty + 1;
        if (empty)
            rest(empty);
    }
    return NULL;
}

/* Signals are for the threads of the program. */
static void start_thread(void)
{
    pthread_t thread;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, run_devices, NULL) != 0)
        abort();
    pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void init(struct CUstream_st *stream, int device, int is_blocking)
{
    *stream = (struct CUstream_st){.device = device, .is_blocking = is_blocking};
    stream->end = &stream->first;
}

static void init_defaults(void)
{
    for (int i = 0; i < SETTINGS_MOST_GPUS; i++) {
        init(&defaults[i], i, 0);
        defaults[i].id = (unsigned long long)i + 1;
    }
}

cudaStream_t streams_of(cudaStream_t handle)
{
    static pthread_once_t defaults_once = PTHREAD_ONCE_INIT;
    static _Thread_local cudaStream_t own;

    pthread_once(&defaults_once, init_defaults);
    if (!handle || handle == cudaStreamLegacy)
        return &defaults[current];
    if (handle != cudaStreamPerThread)
        return handle;
    if (!own) {
        streams_lock();
        own = streams_create(current, 1);
        streams_unlock();
    }
    return own;
}

cudaStream_t streams_create(int device, int is_blocking)
{
    struct CUstream_st *stream = malloc(sizeof(*stream));

    if (!stream)
        abort();
    init(stream, device, is_blocking);
    stream->id = ++last_id;
    stream->next = streams;
    streams = stream;
    return stream;
}

void streams_destroy(cudaStream_t stream)
{
    stream->is_destroyed = 1;
    if (!stream->first)
        free_destroyed();
}

void streams_queue(cudaStream_t stream, struct work *work)
{
    pthread_once(&once, start_thread);
    work->number = ++last_number;
    work->next = NULL;
    *stream->end = work;
    stream->end = &work->next;
    pthread_cond_signal(&queued);
}

static int is_behind(const struct CUstream_st *stream, unsigned long long number)
{
    return stream->first && stream->first->number <= number;
}

void streams_drain(cudaStream_t stream)
{
    unsigned long long number = last_number;

    while (is_behind(stream, number))
        streams_wait();
}

static int is_device_behind(int device, unsigned long long number)
{
    int behind = is_behind(&defaults[device], number);

    for (const struct CUstream_st *stream = streams; stream; stream = stream->next)
        behind |= stream->device == device && is_behind(stream, number);
    return behind;
}

void streams_drain_device(int device)
{
    unsigned long long number = last_number;

    while (is_device_behind(device, number))
        streams_wait();
}
