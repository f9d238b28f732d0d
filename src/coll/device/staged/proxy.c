/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * proxy.c - the thread that moves messages: it takes exchanges from the ring in their order, copies
 * what this rank sends to itself, lets the transport move all else, and releases the kernels that
 * wait. It does so on a stream of its own, by a write behind the last message; or, for a transport
 * whose copies the waiting kernels make, without any call of CUDA. It calls no MPI, takes no lock
 * and shares nothing with other threads but the ring, those copies and these:
 *
 *   stops             writer: the thread that ends or frees the communicator. Never taken back.
 *   comm->finished    writer: whoever ends the communicator. Once.
 *   failure, failed   writer: the proxy's thread, the text before the flag, once, both before the
 *                     ring's stop: whoever learns of the end from kernels that saw that stop finds
 *                     the text.
 *   ended             writer: the proxy's thread, as its last step.
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "coll/device/staged/proxy.h"
#include "base/clock.h"
#include "base/jitter.h"
#include "base/log.h"
#include "coll/device/device.h"
#include "transport/cuda/asked_copies.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"
#include "transport/cuda/driver_call.h"
#include "kernels/ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Passes without work: at first the proxy spins, then lets others run, then sleeps. */
enum { SPINS = 1 << 14, YIELDS = 1 << 15, SLEEP_NS = 20000 };
/* How long a caller waits at most for the thread, or its stream, to end. */
enum { GRACE_MS = 5000 };

struct epx_proxy {
    const struct epx_device *device;
    char *ring;
    struct epx_copies *copies; /* that kernels make; NULL = the proxy has a stream */
    cudaStream_t stream;
    uint64_t *released; /* not from a memory pool, where the driver cannot write values */
    uint64_t next;      /* number of the exchange that comes */
    int idle_passes;
    int started;
    int warned; /* of the default stream; threads that call operations alone use it */
    atomic_int stops, failed, ended;
    char failure[EPX_MAX_ERROR_STRING];
    pthread_t thread;
    struct epx_proxy *following; /* in the list of the process */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct epx_proxy *first; /* under the mutex */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pid_t process; /* that has the threads of the proxies */

char *epx_proxy_ring(const struct epx_proxy *proxy)
{
    return proxy->ring;
}

const uint64_t *epx_proxy_released(const struct epx_proxy *proxy)
{
    return proxy->released;
}

struct epx_copy_queues *epx_proxy_copies(const struct epx_proxy *proxy)
{
    return proxy->copies ? proxy->copies->queues : NULL;
}

const char *epx_proxy_failure(const struct epx_proxy *proxy)
{
    return proxy && proxy->failed ? proxy->failure : NULL;
}

static void nap(void)
{
    const struct timespec time = {0, SLEEP_NS};

    nanosleep(&time, NULL);
}

static void pause_idle(struct epx_proxy *proxy)
{
    if (proxy->idle_passes < YIELDS)
        proxy->idle_passes++;
    if (proxy->idle_passes >= YIELDS)
        nap();
    else if (proxy->idle_passes >= SPINS)
        sched_yield();
}

static void pause_unless(struct epx_proxy *proxy, int moved)
{
    if (moved)
        proxy->idle_passes = 0;
    else
        pause_idle(proxy);
}

static int is_over(const struct epx_proxy *proxy)
{
    return proxy->stops || proxy->device->comm->finished;
}

static int release(const struct epx_proxy *proxy, uint64_t number)
{
    const struct epx_device *device = proxy->device;
    CUresult error;

    if (proxy->copies) {
        epx_copies_end(proxy->copies, number);
        return EPX_SUCCESS;
    }
    error = device->write_value(proxy->stream, (CUdeviceptr)(uintptr_t)proxy->released, number, 0);
    if (error != CUDA_SUCCESS) /* the runtime numbers errors as the driver does */
        return epx_fail_cuda((cudaError_t)error, "cuStreamWriteValue64");
    return EPX_SUCCESS;
}

static int copy_own(const struct epx_proxy *proxy, const struct epx_exchange *exchange)
{
    const struct epx_message *own = &exchange->message[proxy->device->comm->rank];
    const char *from = exchange->send + own->send_at;
    char *to = exchange->recv + own->recv_at;
    size_t bytes = (size_t)own->send_bytes;

    if (proxy->copies)
        return epx_copies_ask(proxy->copies, EPX_COPY_IN, to, from, bytes);
    if (bytes)
        EPX_TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, proxy->stream));
    return EPX_SUCCESS;
}

static int move(struct epx_proxy *proxy, const struct epx_exchange *exchange)
{
    const struct epx_transport *transport = proxy->device->transport;
    int queued = transport->ops->exchanges->queued == NULL, moved = 0;

    EPX_LOG_DEBUG("exchange %llu begins", (unsigned long long)exchange->number);
    epx_jitter();
    EPX_TRY(copy_own(proxy, exchange));
    EPX_TRY(transport->ops->exchanges->start(transport->state, exchange, proxy->stream));
    while (!queued && !is_over(proxy)) {
        EPX_TRY(transport->ops->exchanges->queued(transport->state, &queued, &moved));
        pause_unless(proxy, moved);
    }
    EPX_LOG_DEBUG("exchange %llu is queued", (unsigned long long)exchange->number);
    return queued ? release(proxy, exchange->number) : EPX_SUCCESS;
}

void epx_proxy_stop_kernels(struct epx_proxy *proxy)
{
    __atomic_store_n(epx_ring_stop(proxy->ring), 1, __ATOMIC_RELEASE);
}

/* Notes why, then stops the kernels: the operations that end so report this reason. */
static void give_up_here(struct epx_proxy *proxy)
{
    snprintf(proxy->failure, sizeof(proxy->failure), "rank %d: %.*s", proxy->device->comm->rank,
             EPX_MAX_ERROR_STRING / 2, epx_status_message());
    proxy->failed = 1;
    epx_proxy_stop_kernels(proxy);
}

static void serve(struct epx_proxy *proxy)
{
    int num_ranks = proxy->device->comm->size, rc = EPX_SUCCESS;

    while (rc == EPX_SUCCESS && !is_over(proxy)) {
        const struct epx_exchange *exchange = epx_ring_look(proxy->ring, num_ranks, proxy->next);

        if (!exchange) {
            pause_idle(proxy);
            continue;
        }
        proxy->idle_passes = 0;
        rc = move(proxy, exchange);
        proxy->next++;
    }
    if (rc != EPX_SUCCESS)
        give_up_here(proxy);
}

/* Stops the kernels first: after an abort the stream goes on up to the release, and kernels must
 * have seen the stop before that. */
static void abort_exchanges(struct epx_proxy *proxy)
{
    const struct epx_transport *transport = proxy->device->transport;

    epx_proxy_stop_kernels(proxy);
    if (transport->ops->exchanges->abort)
        transport->ops->exchanges->abort(transport->state);
}

static void serve_until_over(struct epx_proxy *proxy)
{
    serve(proxy);
    while (!is_over(proxy))
        pause_idle(proxy);
    if (proxy->device->comm->finished)
        abort_exchanges(proxy);
}

/* Serves with the proxy's device as the current one. The device before that is not put back: the
 * thread only ends, and a thread that was left alone may do so when CUDA has ended before it. */
static int serve_on_device(struct epx_proxy *proxy)
{
    struct epx_device_scope scope;

    EPX_TRY_CUDA(epx_device_enter(proxy->device->ordinal, &scope));
    serve_until_over(proxy);
    return EPX_SUCCESS;
}

static void *run(void *arg)
{
    struct epx_proxy *proxy = arg;

    epx_status_enter("the proxy");
    if (proxy->copies)
        serve_until_over(proxy);
    else if (serve_on_device(proxy) != EPX_SUCCESS)
        give_up_here(proxy);
    proxy->ended = 1;
    return NULL;
}

static void join(struct epx_proxy *proxy)
{
    proxy->stops = 1;
    if (proxy->started)
        pthread_join(proxy->thread, NULL);
    proxy->started = 0;
}

static void retire(struct epx_proxy *proxy, int64_t end)
{
    if (!proxy->started)
        return;
    proxy->stops = 1;
    while (!proxy->ended && !epx_deadline_is_over(end))
        nap();
    if (proxy->ended)
        join(proxy);
    else
        EPX_LOG_WARN("the proxy still waits for the GPU; its thread is left alone");
}

/* At exit: stop proxies that are still alive before CUDA's exit handler (registered first, so run
 * last) frees the ring. All of them together have the whole grace period, however short the time
 * limits of their communicators: what they wait in may call CUDA, which ends after this handler. A
 * child of fork has no such threads. */
static void retire_all(void)
{
    int64_t end = epx_deadline_in(GRACE_MS);

    if (getpid() != process)
        return;
    pthread_mutex_lock(&mutex);
    for (struct epx_proxy *proxy = first; proxy; proxy = proxy->following)
        retire(proxy, end);
    pthread_mutex_unlock(&mutex);
}

static void retire_at_exit(void)
{
    process = getpid();
    atexit(retire_all);
}

static void enlist(struct epx_proxy *proxy)
{
    pthread_mutex_lock(&mutex);
    proxy->following = first;
    first = proxy;
    pthread_mutex_unlock(&mutex);
}

static void unlist(const struct epx_proxy *proxy)
{
    struct epx_proxy **link = &first;

    pthread_mutex_lock(&mutex);
    while (*link && *link != proxy)
        link = &(*link)->following;
    if (*link)
        *link = proxy->following;
    pthread_mutex_unlock(&mutex);
}

/*
 * Lazy loading: a kernel that CUDA loads at its first launch, and all that comes later, wait for
 * what runs already. If that is a kernel that waits for the proxy, they wait until its timeout.
 */
static void warn_of_lazy_loading(void)
{
    union {
        void *data;
        CUresult(CUDAAPI *function)(CUmoduleLoadingMode *mode);
    } get_mode;
    CUmoduleLoadingMode mode;

    if (epx_find_driver_call("cuModuleGetLoadingMode", EPX_ANY_DRIVER, &get_mode.data) ==
            cudaSuccess &&
        get_mode.function(&mode) == CUDA_SUCCESS && mode == CU_MODULE_LAZY_LOADING)
        EPX_LOG_WARN("CUDA loads kernels lazily, which can stop operations by messages until "
                     "they time out: set CUDA_MODULE_LOADING=EAGER");
}

/*
 * CUDA takes about a thousand launches on a stream ahead of the GPU; a thread that launches one
 * more waits. If that is on the legacy default stream, the CUDA calls of all threads wait
 * meanwhile: also those of the proxy, for which the GPU may be waiting. Streams that a program
 * makes do no such thing.
 */
void epx_proxy_note_stream(struct epx_proxy *proxy, cudaStream_t stream)
{
    if (!proxy || proxy->copies || proxy->warned || (stream && stream != cudaStreamLegacy))
        return;
    proxy->warned = 1;
    EPX_LOG_WARN("operations are on CUDA's default stream, where a thousand launches ahead of the "
                 "GPU stop their messages until they time out: use another stream");
}

/* Makes CUDA load now what its first copy on the device needs: later that could wait for a kernel
 * that waits. */
static int warm_up(struct epx_proxy *proxy)
{
    enum { BYTES = 2048, SHORT = 40 };
    cudaStream_t stream = proxy->stream;
    char *from = NULL, *to;
    cudaError_t error;

    EPX_TRY_CUDA(cudaMallocAsync((void **)&from, 2 * BYTES, stream));
    to = from + BYTES;
    error = cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, stream);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(to, from, SHORT, cudaMemcpyDeviceToDevice, stream);
    cudaFreeAsync(from, stream);
    EPX_TRY_CUDA(error);
    return EPX_SUCCESS;
}

static int open_stream(struct epx_proxy *proxy)
{
    warn_of_lazy_loading();
    EPX_TRY_CUDA(epx_device_new_stream(&proxy->stream));
    EPX_TRY_CUDA(cudaMalloc((void **)&proxy->released, sizeof(*proxy->released)));
    EPX_TRY_CUDA(cudaMemsetAsync(proxy->released, 0, sizeof(*proxy->released), proxy->stream));
    EPX_TRY(warm_up(proxy));
    EPX_TRY_CUDA(cudaStreamSynchronize(proxy->stream));
    return EPX_SUCCESS;
}

static int init(struct epx_proxy *proxy)
{
    const struct epx_transport *transport = proxy->device->transport;
    size_t bytes = epx_ring_bytes(proxy->device->comm->size);

    proxy->next = 1;
    EPX_TRY_CUDA(cudaHostAlloc((void **)&proxy->ring, bytes, cudaHostAllocPortable));
    memset(proxy->ring, 0, bytes);
    if (transport->ops->exchanges->copies)
        proxy->copies = transport->ops->exchanges->copies(transport->state);
    else
        EPX_TRY(open_stream(proxy));
    proxy->started = pthread_create(&proxy->thread, NULL, run, proxy) == 0;
    EPX_FAIL_IF(!proxy->started, EPX_ERR_NO_MEM, "no thread for the proxy");
    enlist(proxy);
    pthread_once(&once, retire_at_exit);
    return EPX_SUCCESS;
}

static int64_t end_of_grace(const struct epx_proxy *proxy)
{
    return epx_deadline_in(epx_shorter_ms(GRACE_MS, proxy->device->comm->params.timeout_ms));
}

int epx_proxy_retire(struct epx_proxy *proxy)
{
    if (!proxy)
        return 1;
    retire(proxy, end_of_grace(proxy));
    return !proxy->started;
}

/* Waits for the stream, but aborts exchanges that still wait for ranks after the grace period: they
 * would keep the stream for good. */
static void settle(struct epx_proxy *proxy)
{
    cudaError_t before = cudaPeekAtLastError(), error;
    int64_t end = end_of_grace(proxy);

    while ((error = cudaStreamQuery(proxy->stream)) == cudaErrorNotReady &&
           !epx_deadline_is_over(end))
        nap();
    if (error == cudaErrorNotReady)
        abort_exchanges(proxy);
    if (before == cudaSuccess)
        cudaGetLastError(); /* the error of the query */
    cudaStreamSynchronize(proxy->stream);
}

void epx_proxy_free(struct epx_proxy *proxy)
{
    if (!proxy)
        return;
    unlist(proxy);
    join(proxy);
    if (proxy->stream) {
        settle(proxy);
        cudaStreamDestroy(proxy->stream);
    }
    cudaFree(proxy->released);
    cudaFreeHost(proxy->ring);
    free(proxy);
}

int epx_proxy_create(const struct epx_device *device, struct epx_proxy **result)
{
    struct epx_proxy *proxy = calloc(1, sizeof(*proxy));
    int rc;

    EPX_FAIL_IF(!proxy, EPX_ERR_NO_MEM, "no memory for the proxy");
    proxy->device = device;
    rc = init(proxy);
    if (rc != EPX_SUCCESS) {
        epx_proxy_free(proxy);
        return rc;
    }
    *result = proxy;
    return EPX_SUCCESS;
}
