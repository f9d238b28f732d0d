/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_dispatch_device_direct.c - EPX_Route_dispatch on device memory: one launch where the route
 * is small and there is room for its rows, which all ranks find alike; else its two halves.
 */
#include "coll/device/device.h"
#include "coll/device/device_verbs.h"
#include "coll/device/direct/rests.h"
#include "kernels/args/route_dispatch_args.h"
#include "transport/cuda/cuda_errors.h"

/* The way of a half has routes_small of a routing, or banks of a dispatch. */
static int is_one_launch(const struct epx_way *way)
{
    return way->routes_small && way->banks.senders;
}

/* All blocks of a kernel that has one phase alone do the routing's part of it. */
static int queue_small(const struct epx_request *request, const struct epx_way *way, int32_t phase)
{
    struct epx_route_dispatch args = {.routing = epx_route_args_of(request),
                                      .rows = epx_dispatch_args_of(request)};

    args.rows.banks = way->banks;
    args.rows.banks.phase = phase;
    args.routing.banks = args.rows.banks;
    if (phase != EPX_PHASE_BOTH)
        args.routing.banks.senders = 0;
    EPX_TRY_LAUNCH(args.rows.fields.num > 1
                       ? epx_launch_route_dispatch_fields_small(&args, request->call.stream)
                       : epx_launch_route_dispatch_small(&args, request->call.stream));
    return EPX_SUCCESS;
}

int epx_route_dispatch_device_direct(const struct epx_request *request)
{
    const struct epx_way *way = &epx_device_of(request)->way;

    if (!is_one_launch(way))
        return epx_route_dispatch_device(request);
    return queue_small(request, way, epx_first_phase(request, way));
}

int epx_route_dispatch_takes_device_direct(const struct epx_request *request)
{
    const struct epx_way *way = &epx_device_of(request)->way;

    if (!is_one_launch(way))
        return epx_route_dispatch_takes_device(request);
    return queue_small(request, way, EPX_PHASE_TAKE);
}
