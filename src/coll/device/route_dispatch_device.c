/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_dispatch_device.c - EPX_Route_dispatch on device memory where the ground has no faster way:
 * the kernels of its routing, then those of its dispatch, as one operation with one completion. The
 * ranks agree once, as coll/route_dispatch.c explains for host memory: the last kernel of the
 * routing leaves to the first of the dispatch what the ranks told, and completes nothing.
 */
#include "coll/device/device.h"
#include "coll/device/device_verbs.h"
#include "coll/ground.h"

static int queue_half(const struct epx_request *request, enum epx_verb verb, enum epx_half half)
{
    struct epx_request under_way = *request;

    under_way.half = half;
    return epx_device_of(request)->transport->ground->queue[verb](&under_way);
}

int epx_route_dispatch_device(const struct epx_request *request)
{
    EPX_TRY(queue_half(request, EPX_VERB_ROUTE_TOKENS, EPX_HALF_ROUTING));
    return queue_half(request, EPX_VERB_DISPATCH, EPX_HALF_DISPATCH);
}
