/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_dispatch_device_direct.c - EPX_Route_dispatch on device memory: one launch where the route
 * is small and there is room for its rows (small_banks.c); which of them are is the same on all
 * ranks.
 */
#include "coll/device/device_verbs.h"
#include "coll/device/direct/rests.h"
#include "coll/device/direct/small_banks.h"
#include "coll/device/operation_args.h"
#include "coll/device/plan_device.h"
#include "kernels/args/route_dispatch_args.h"
#include "transport/cuda/cuda_errors.h"

static struct epx_route_dispatch args_of(const struct epx_request *request)
{
    int32_t top_k = epx_device_plan_of(request)->shape.top_k;
    struct epx_route_dispatch args = {.routing = epx_route_args_of(request),
                                      .rows = epx_dispatch_args_of(request)};

    if (epx_is_small_routing(request))
        args.rows.banks = epx_banks_of(request, request->comm->size, top_k);
    return args;
}

/* All blocks of a kernel that has one phase alone do the routing's part of it. */
static int queue_small(const struct epx_request *request, struct epx_route_dispatch *args,
                       int32_t phase)
{
    args->rows.banks.phase = phase;
    args->routing.banks = args->rows.banks;
    if (phase != EPX_PHASE_BOTH)
        args->routing.banks.senders = 0;
    EPX_TRY_LAUNCH(args->rows.fields.num > 1
                       ? epx_launch_route_dispatch_fields_small(args, request->call.stream)
                       : epx_launch_route_dispatch_small(args, request->call.stream));
    return EPX_SUCCESS;
}

int epx_route_dispatch_device_direct(const struct epx_request *request)
{
    struct epx_route_dispatch args = args_of(request);

    if (!args.rows.banks.senders)
        return epx_route_dispatch_device(request);
    return queue_small(request, &args, epx_first_phase(request, 1));
}

int epx_route_dispatch_takes_device_direct(const struct epx_request *request)
{
    struct epx_route_dispatch args = args_of(request);

    if (!args.rows.banks.senders)
        return epx_route_dispatch_takes_device(request);
    return queue_small(request, &args, EPX_PHASE_TAKE);
}
