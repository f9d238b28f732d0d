/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_dispatch_device.c - EPX_Route_dispatch on device memory where the ground has no faster way:
 * the kernels of its routing, then those of its dispatch, as one operation with one completion. The
 * ranks agree once, as coll/route_dispatch.c explains for host memory: the last kernel of the
 * routing leaves to the first of the dispatch what the ranks told, and completes nothing.
 */
#include "coll/device/device_verbs.h"
#include "coll/device/way_device.h"

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
