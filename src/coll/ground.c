/* SPDX-License-Identifier: BSD-3-Clause */
/* ground.c - an operation and the ground that it stands on. */
#include "coll/ground.h"

#include "coll/rounding.h"
#include "transport/module.h"

struct epx_transport *epx_transport_of(const struct epx_request *request)
{
    return request->route ? request->route->transport : request->comm->transport;
}

/* One step of an operation on host memory. */
static int step(struct epx_request *request, int *moved)
{
    const uint64_t before = epx_rounding_begin();
    const int rc = epx_transport_of(request)->ground->step[request->call.verb](request, moved);

    epx_rounding_end(before);
    return rc;
}

void epx_ground_prepare(struct epx_request *request)
{
    const struct epx_transport *transport = epx_transport_of(request);
    const struct epx_device_ops *device_ops = transport->device_ops;

    if (!device_ops) {
        request->progress = step;
        request->lacks = transport->ground->lacks;
        return;
    }
    request->launch = device_ops->launch;
    request->progress = device_ops->poll;
    request->ended = device_ops->ended;
}
