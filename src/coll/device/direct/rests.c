/* SPDX-License-Identifier: BSD-3-Clause */
/* rests.c - an operation in two phases, seen from the host. */
#include "coll/device/direct/rests.h"
#include "base/jitter.h"
#include "coll/device/device_liveness.h"
#include "coll/device/device_order.h"
#include "coll/ground.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"
#include "kernels/args/load.h"

/* Rows that go round by round through the stage have kernels in which all blocks do both. Senders
 * that wait for weights are in one kernel with the receivers: a kernel that only sends waits for
 * nobody. */
int32_t epx_first_phase(const struct epx_request *request, const struct epx_way *way)
{
    struct epx_device *device = epx_device_of(request);
    int64_t split = request->comm->params.split_phases;
    const int small = way->banks.senders > 0;

    if (!epx_kernels_begin_early() || request->comm->size == 1 || split == EPX_SPLIT_NONE ||
        (small && split == EPX_SPLIT_LARGE) || way->in_rounds || request->call.token_weights)
        return EPX_PHASE_BOTH;
    device->rest.left = 1;
    return EPX_PHASE_SEND;
}

/* Whether the request was made in a capture that has ended without its rest. */
static int was_cut_off(const struct epx_device *device, const struct epx_request *request)
{
    unsigned long long capture;

    if (!request->captured)
        return 0;
    return device->rest.request != request ||
           epx_device_find_capture(request->call.stream, &capture) != EPX_SUCCESS ||
           capture != device->rest.capture;
}

static int queue_rest(struct epx_device *device, struct epx_request *request)
{
    const struct epx_ground *ground = device->transport->ground;
    int rc;

    device->rest.request = NULL;
    request->queue_rest = NULL;
    epx_jitter();
    rc = ground->queue_rest[request->call.verb](request);
    if (rc == EPX_SUCCESS)
        rc = epx_device_queue_end(device, request, device->rest.capture);
    if (rc == EPX_SUCCESS || request->captured || device->comm->finished)
        return rc;
    return epx_device_end_halfway(device, rc);
}

static int queue_rest_here(struct epx_device *device, struct epx_request *request)
{
    epx_cuda_forget_error();
    EPX_FAIL_IF(was_cut_off(device, request), EPX_ERR_REQUEST,
                "the capture that the request was made in has ended, and has only the first half "
                "of the operation: do not launch its graph");
    return queue_rest(device, request);
}

/* For struct epx_request. */
static int queue_rest_of(struct epx_request *request)
{
    struct epx_device *device = epx_device_of(request);
    struct epx_device_scope scope;
    int rc;

    EPX_TRY_CUDA(epx_device_enter(device->ordinal, &scope));
    rc = queue_rest_here(device, request);
    epx_device_leave(&scope);
    return rc;
}

int epx_device_leaves_rest(struct epx_device *device, struct epx_request *request,
                           unsigned long long capture)
{
    if (!device->rest.left)
        return 0;
    device->rest.request = request;
    device->rest.capture = capture;
    request->queue_rest = queue_rest_of;
    return 1;
}

int epx_device_queue_last_rest(struct epx_device *device)
{
    struct epx_request *last = device->rest.request;

    if (last && !was_cut_off(device, last))
        return queue_rest(device, last);
    device->rest.request = NULL;
    return EPX_SUCCESS;
}
