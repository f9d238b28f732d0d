/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.c - a communicator on device memory. An operation is kernels queued on the user's stream;
 * the last of them writes its outcome into pinned memory, where EPX_Wait and EPX_Test look. So no
 * call asks CUDA whether anything is done.
 */
#include "coll/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jitter.h"
#include "base/log.h"
#include "core/agree.h"
#include "core/progress.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"

struct epx_device *epx_device_of(const struct epx_request *request)
{
    return request->comm->transport->device;
}

static int allocate_completions(struct epx_device *device)
{
    size_t bytes = EPX_MOST_IN_FLIGHT * sizeof(*device->completions);

    device->events = calloc(EPX_MOST_IN_FLIGHT, sizeof(*device->events));
    device->unused = calloc(EPX_MOST_IN_FLIGHT, sizeof(*device->unused));
    EPX_FAIL_IF(!device->events || !device->unused, EPX_ERR_NO_MEM, "no memory for %d completions",
                EPX_MOST_IN_FLIGHT);
    EPX_TRY_CUDA(cudaHostAlloc((void **)&device->completions, bytes, cudaHostAllocPortable));
    EPX_TRY_CUDA(cudaHostAlloc((void **)&device->notes, sizeof(*device->notes),
                               cudaHostAllocPortable));
    memset(device->completions, 0, bytes);
    memset(device->notes, 0, sizeof(*device->notes));
    for (int i = EPX_SHARED_COMPLETION - 1; i >= 0; i--)
        device->unused[device->num_unused++] = i;
    return EPX_SUCCESS;
}

static int create_streams(struct epx_device *device)
{
    int least, greatest;

    EPX_TRY_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    EPX_TRY_CUDA(cudaStreamCreateWithPriority(&device->stream, cudaStreamNonBlocking, greatest));
    EPX_TRY_CUDA(cudaEventCreateWithFlags(&device->copied, cudaEventDisableTiming));
    return epx_device_init_order(device);
}

static int init(struct epx_device *device)
{
    EPX_TRY(allocate_completions(device));
    EPX_TRY(create_streams(device));
    EPX_TRY_LAUNCH(epx_load_kernels());
    return EPX_SUCCESS;
}

/* All of them must run at once on every rank's GPU. */
static int find_blocks(struct epx_device *device)
{
    int64_t wanted = device->comm->params.max_sms, most;
    int sms = 0, rc = EPX_SUCCESS;
    cudaError_t error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount,
                                               device->ordinal);

    if (error != cudaSuccess)
        rc = epx_fail_cuda(error, "cudaDeviceGetAttribute");
    EPX_TRY(epx_comm_agree(device->comm, rc));
    EPX_TRY(epx_comm_max(device->comm, -(wanted < sms ? wanted : sms), &most));
    device->blocks = (int)-most;
    return EPX_SUCCESS;
}

/* A look at the abort word may be under way: into notes, from the window. */
static void free_cuda(struct epx_device *device)
{
    if (device->stream)
        cudaStreamSynchronize(device->stream);
    for (int i = 0; device->events && i < EPX_MOST_IN_FLIGHT; i++)
        if (device->events[i])
            cudaEventDestroy(device->events[i]);
    epx_device_end_order(device);
    if (device->copied)
        cudaEventDestroy(device->copied);
    if (device->stream)
        cudaStreamDestroy(device->stream);
    cudaFreeHost(device->completions);
    cudaFreeHost(device->notes);
}

static void tell_latency(struct epx_device *device)
{
    const struct epx_device_exchanges *all = &device->notes->exchanges;

    if (!epx_device_copy(device, &device->notes->exchanges, &device->state->exchanges,
                         sizeof(*all)) || all->num == 0)
        return;
    EPX_LOG_INFO("%llu exchanges of messages arrived after kernels had asked: the fastest %.1f us, "
                 "in the mean %.1f us", (unsigned long long)all->num, (double)all->least_ns / 1e3,
                 (double)all->waited_ns / 1e3 / (double)all->num);
}

/* Of a lost GPU the memory stays, which the proxy may still use. */
static void device_free(struct epx_device *device)
{
    struct epx_device_scope scope;

    if (!device)
        return;
    if (device->proxy && !device->comm->finished)
        tell_latency(device);
    epx_mpi_liveness_free(device->mpi_liveness);
    device->mpi_liveness = NULL;
    if (epx_device_enter(device->ordinal, &scope) != cudaSuccess) {
        epx_proxy_retire(device->proxy);
        return;
    }
    epx_proxy_free(device->proxy);
    if (device->window)
        device->transport->ops->window_free(device->transport->state, device->window);
    free_cuda(device);
    epx_device_leave(&scope);
    free(device->events);
    free(device->unused);
    free(device);
}

static void device_retire(struct epx_device *device)
{
    if (device)
        epx_proxy_retire(device->proxy);
}

static int init_all(void *state)
{
    struct epx_device *device = state;
    struct epx_comm *comm = device->comm;

    EPX_TRY(epx_comm_agree(comm, init(device)));
    EPX_TRY(find_blocks(device));
    EPX_TRY(epx_control_window_create(device));
    if (!device->transport->ops->exchange)
        return EPX_SUCCESS;
    EPX_TRY(epx_comm_agree(comm, epx_mpi_liveness_create(comm, &device->mpi_liveness)));
    return epx_comm_agree(comm, epx_proxy_create(device, &device->proxy));
}

/* The ranks agree also if one of them has no memory for the struct or loses its device. */
static int device_create(struct epx_comm *comm, const struct epx_transport *transport,
                         struct epx_device **result)
{
    struct epx_device *device = calloc(1, sizeof(*device));

    *result = device;
    if (!device)
        return epx_comm_agree(comm, epx_fail(EPX_ERR_NO_MEM, "no memory for a device"));
    device->comm = comm;
    device->transport = transport;
    return epx_device_run(comm, &device->ordinal, init_all, device);
}

static int queue_messages(struct epx_request *request)
{
    switch (request->call.verb) {
    case EPX_VERB_ROUTE_TOKENS: return epx_route_tokens_messages(request);
    case EPX_VERB_DISPATCH:
    case EPX_VERB_COMBINE_BACKWARD: return epx_dispatch_messages(request);
    case EPX_VERB_COMBINE:
    case EPX_VERB_DISPATCH_BACKWARD: return epx_combine_messages(request);
    default: return epx_alltoallv_messages(request);
    }
}

static int queue_kernels(struct epx_request *request)
{
    switch (request->call.verb) {
    case EPX_VERB_ROUTE_TOKENS: return epx_route_tokens_device(request);
    case EPX_VERB_DISPATCH:
    case EPX_VERB_COMBINE_BACKWARD: return epx_dispatch_device(request);
    case EPX_VERB_COMBINE:
    case EPX_VERB_DISPATCH_BACKWARD: return epx_combine_device(request);
    default: return epx_alltoallv_device(request);
    }
}

/*
 * --enable-jitter: what this operation takes, before its first kernel posts ready. Until then no
 * rank stores there, and nothing is left of earlier operations that anyone has yet to read.
 */
static int poison(const struct epx_device *device, const struct epx_request *request)
{
    size_t bytes = (size_t)device->stage_bytes * (device->proxy ? 2 : 1);

    if (request->route)
        EPX_TRY(epx_device_route_poison(request));
    EPX_TRY_CUDA(cudaMemsetAsync(device->own_stage, EPX_PATTERN, bytes, request->call.stream));
    return EPX_SUCCESS;
}

static int take_completion(struct epx_device *device, struct epx_request *request)
{
    cudaEvent_t *event;

    EPX_FAIL_IF(device->num_unused == 0, EPX_ERR_NO_MEM,
                "%d operations are in flight; wait for one of them and call again",
                EPX_SHARED_COMPLETION);
    request->completion = device->unused[device->num_unused - 1];
    event = &device->events[request->completion];
    if (request->captured && !*event)
        EPX_TRY_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    device->num_unused--;
    device->number = device->number == UINT32_MAX ? 1 : device->number + 1;
    request->number = device->number;
    return EPX_SUCCESS;
}

static void give_completion(struct epx_device *device, const struct epx_request *request)
{
    device->unused[device->num_unused++] = request->completion;
}

static int queue_operation(struct epx_device *device, struct epx_request *request,
                           unsigned long long capture)
{
    epx_jitter();
    if (EPX_JITTERS)
        EPX_TRY(poison(device, request));
    EPX_TRY(device->proxy ? queue_messages(request) : queue_kernels(request));
    return epx_device_queue_end(device, request, capture);
}

/* How far the operation was queued nobody knows: the ranks would be out of step. */
static int end_halfway(struct epx_device *device, int rc)
{
    enum { ROOM_FOR_RANK = 48 };
    char message[EPX_MAX_ERROR_STRING];

    snprintf(message, sizeof(message), "%.*s (in the middle of the operation, on rank %d)",
             EPX_MAX_ERROR_STRING - ROOM_FOR_RANK, epx_status_message(), device->comm->rank);
    epx_comm_give_up(device->comm, message);
    return epx_fail_quietly(rc, message);
}

/* Launchers would take an error that nobody asked for as their own. */
static void forget_earlier_error(void)
{
    cudaError_t error = cudaGetLastError();

    if (error != cudaSuccess && error != cudaErrorNotReady)
        EPX_LOG_WARN("an earlier CUDA call of this thread failed: %s", cudaGetErrorString(error));
}

/* An error before the first kernel leaves all as it was. */
static int launch_here(struct epx_device *device, struct epx_request *request)
{
    unsigned long long capture = 0;
    int rc;

    forget_earlier_error();
    EPX_TRY(epx_device_find_capture(request->call.stream, &capture));
    if (!capture)
        EPX_TRY(epx_device_check_stream(device, request->call.stream));
    request->captured = capture != 0;
    EPX_TRY(take_completion(device, request));
    rc = epx_device_queue_behind(device, request->call.stream, capture);
    if (rc == EPX_SUCCESS) {
        rc = queue_operation(device, request, capture);
        if (rc != EPX_SUCCESS && !capture)
            return end_halfway(device, rc);
    }
    if (rc != EPX_SUCCESS)
        give_completion(device, request);
    return rc;
}

static int device_launch(struct epx_request *request)
{
    struct epx_device *device = epx_device_of(request);
    struct epx_device_scope scope;
    int rc;

    EPX_TRY_CUDA(epx_device_enter(device->ordinal, &scope));
    rc = launch_here(device, request);
    epx_device_leave(&scope);
    return rc;
}

static int device_poll(struct epx_request *request, int *moved)
{
    static const struct epx_outcome fine;
    struct epx_device *device = epx_device_of(request);
    const struct epx_completion *completion = &device->completions[request->completion];
    uint64_t word = __atomic_load_n(&completion->word, __ATOMIC_ACQUIRE);
    int details = (uint32_t)word == EPX_COMPLETION_DETAILS;
    struct epx_outcome outcome;

    if (word >> 32 != request->number)
        return epx_device_check(device, request);
    *moved = 1;
    outcome = details ? completion->outcome : fine;
    request->received_rows = details ? completion->rows : (int64_t)(uint32_t)word;
    request->complete = 1;
    give_completion(device, request);
    return epx_outcome_report(device, request, &outcome);
}

/* What was called after the communicator finished has no kernels. */
static int queue_wait(const struct epx_device *device, const struct epx_request *request,
                      EPX_Stream stream)
{
    struct epx_device_scope scope;
    int rc;

    if (stream == request->call.stream || !request->number)
        return EPX_SUCCESS;
    EPX_TRY_CUDA(epx_device_enter(device->ordinal, &scope));
    rc = epx_device_queue_wait(device, request, stream);
    epx_device_leave(&scope);
    return rc;
}

static int device_ended(const struct epx_request *request)
{
    const struct epx_device *device = epx_device_of(request);
    const struct epx_completion *completion = &device->completions[request->completion];

    if (!request->number)
        return 1;
    return __atomic_load_n(&completion->word, __ATOMIC_ACQUIRE) >> 32 == request->number;
}

static int device_wait_enqueue(struct epx_request *request, EPX_Stream stream)
{
    struct epx_device *device = epx_device_of(request);

    EPX_TRY(queue_wait(device, request, stream));
    if (request->captured)
        give_completion(device, request);
    return EPX_SUCCESS;
}

static int device_check_buffer(const struct epx_device *device, const char *name,
                               const void *address)
{
    struct cudaPointerAttributes attributes;
    struct epx_device_scope scope;
    cudaError_t error;

    EPX_TRY_CUDA(epx_device_enter(device->ordinal, &scope));
    error = cudaPointerGetAttributes(&attributes, address);
    epx_device_leave(&scope);
    if (error != cudaSuccess)
        return epx_fail_cuda(error, name);
    EPX_FAIL_IF(attributes.type != cudaMemoryTypeDevice &&
                    attributes.type != cudaMemoryTypeManaged,
                EPX_ERR_BUFFER, "%s is not in device memory", name);
    EPX_FAIL_IF(attributes.type == cudaMemoryTypeDevice && attributes.device != device->ordinal,
                EPX_ERR_BUFFER, "%s is in the memory of device %d, the communicator's is %d", name,
                attributes.device, device->ordinal);
    return EPX_SUCCESS;
}

/*
 * The kernels count in device memory, where nothing is torn or late: an operation's last kernel has
 * counted before it writes the completion that the host saw before it asked for this copy.
 */
static void device_add_stats(struct epx_device *device, EPX_Stats *stats)
{
    const struct epx_device_stats *counted = &device->notes->stats;

    epx_device_copy(device, &device->notes->stats, &device->state->stats, sizeof(*counted));
    stats->rows_self += counted->rows_self;
    stats->rows_node += counted->rows_node;
    stats->bytes_self += counted->bytes_self;
    stats->bytes_node += counted->bytes_node;
    stats->rows_network += counted->rows_network;
    stats->bytes_network += counted->bytes_network;
    stats->dropped_rows += counted->dropped_rows;
}

const struct epx_device_ops epx_device_ops = {
    .liveness = &epx_device_liveness,
    .create = device_create,
    .free = device_free,
    .retire = device_retire,
    .route_create = epx_device_route_create,
    .launch = device_launch,
    .poll = device_poll,
    .ended = device_ended,
    .wait_enqueue = device_wait_enqueue,
    .check_buffer = device_check_buffer,
    .take_replay_error = epx_outcome_take_replay_error,
    .add_stats = device_add_stats,
};
