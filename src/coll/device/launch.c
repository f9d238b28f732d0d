/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * launch.c - an operation on device memory from its call to its completion. EPX_Route_dispatch
 * where the ground has no faster way is the kernels of its routing, then those of its dispatch, as
 * one operation with one completion. The ranks agree once, as coll/route_dispatch.c explains for
 * host memory: the last kernel of the routing leaves to the first of the dispatch what the ranks
 * told, and completes nothing.
 */
#include "coll/device/launch.h"

#include "base/jitter.h"
#include "coll/device/device.h"
#include "coll/device/device_liveness.h"
#include "coll/device/device_order.h"
#include "coll/device/device_verbs.h"
#include "coll/device/direct/rests.h"
#include "coll/device/outcome.h"
#include "coll/device/plan_device.h"
#include "coll/device/staged/proxy.h"
#include "coll/ground.h"
#include "core/progress.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"

/*
 * --enable-jitter: fills the memory that this operation receives into with a pattern, before its
 * first kernel posts ready. Until then no rank stores there, and nothing is left there that an
 * earlier operation has yet to read.
 */
static int poison(const struct epx_device *device, const struct epx_request *request)
{
    size_t bytes = (size_t)device->gpu.stage_bytes * (device->proxy ? 2 : 1);

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

/* An alltoallv has one way. */
int epx_device_queue(const struct epx_request *request)
{
    const struct epx_ground *ground = epx_device_of(request)->transport->ground;

    if (request->route)
        epx_device_decide(request);
    return ground->queue[epx_kernels_verb(request)](request);
}

static struct epx_request half_of(const struct epx_request *request, enum epx_half half)
{
    struct epx_request under_way = *request;

    under_way.half = half;
    return under_way;
}

int epx_route_dispatch_device(const struct epx_request *request)
{
    struct epx_request routing = half_of(request, EPX_HALF_ROUTING);
    struct epx_request dispatch = half_of(request, EPX_HALF_DISPATCH);

    EPX_TRY(epx_device_queue(&routing));
    return epx_device_queue(&dispatch);
}

int epx_route_dispatch_takes_device(const struct epx_request *request)
{
    struct epx_request dispatch = half_of(request, EPX_HALF_DISPATCH);

    return epx_dispatch_takes_device_direct(&dispatch);
}

static int queue_operation(struct epx_device *device, struct epx_request *request,
                           unsigned long long capture)
{
    epx_jitter();
    if (epx_jitter_poisons())
        EPX_TRY(poison(device, request));
    device->rest.left = 0;
    EPX_TRY(epx_device_queue(request));
    if (epx_device_leaves_rest(device, request, capture))
        return EPX_SUCCESS;
    return epx_device_queue_end(device, request, capture);
}

/* Queues an operation; an error before its first kernel leaves all as it was. */
static int launch_here(struct epx_device *device, struct epx_request *request)
{
    unsigned long long capture = 0, id = 0;
    int rc;

    epx_cuda_forget_error();
    EPX_TRY(epx_device_queue_last_rest(device));
    EPX_TRY(epx_device_find_capture(request->call.stream, &capture));
    if (!capture)
        EPX_TRY(epx_device_check_stream(device, request->call.stream, &id));
    epx_proxy_note_stream(device->proxy, request->call.stream);
    request->captured = capture != 0;
    EPX_TRY(take_completion(device, request));
    rc = epx_device_queue_behind(device, request->call.stream, capture, id);
    if (rc == EPX_SUCCESS) {
        rc = queue_operation(device, request, capture);
        if (rc != EPX_SUCCESS && !capture)
            return epx_device_end_halfway(device, rc);
    }
    if (rc != EPX_SUCCESS)
        give_completion(device, request);
    return rc;
}

int epx_device_launch(struct epx_request *request)
{
    struct epx_device *device = epx_device_of(request);
    struct epx_device_scope scope;
    int rc;

    EPX_TRY_CUDA(epx_device_enter(device->ordinal, &scope));
    rc = launch_here(device, request);
    epx_device_leave(&scope);
    return rc;
}

int epx_device_poll(struct epx_request *request, int *moved)
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

/* Makes the stream wait, unless the request has no kernels: it was made after the communicator
 * finished. */
static int queue_wait(const struct epx_device *device, const struct epx_request *request,
                      EPX_Stream stream)
{
    struct epx_device_scope scope;
    int rc;

    if (stream == request->call.stream || !request->number)
        return EPX_SUCCESS;
    epx_proxy_note_stream(device->proxy, stream);
    EPX_TRY_CUDA(epx_device_enter(device->ordinal, &scope));
    rc = epx_device_queue_wait(device, request, stream);
    epx_device_leave(&scope);
    return rc;
}

int epx_device_ended(const struct epx_request *request)
{
    const struct epx_device *device = epx_device_of(request);
    const struct epx_completion *completion = &device->completions[request->completion];

    if (!request->number)
        return 1;
    return __atomic_load_n(&completion->word, __ATOMIC_ACQUIRE) >> 32 == request->number;
}

int epx_device_wait_enqueue(struct epx_request *request, EPX_Stream stream)
{
    struct epx_device *device = epx_device_of(request);

    if (request->queue_rest)
        EPX_TRY(request->queue_rest(request));
    EPX_TRY(queue_wait(device, request, stream));
    if (request->captured)
        give_completion(device, request);
    return EPX_SUCCESS;
}
