/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_dispatch_device_direct.c - EPX_Route_dispatch on device memory: one launch where the route
 * is small and its rows fit in a bank; which of them are is the same on all ranks.
 */
#include "coll/device/device_verbs.h"
#include "coll/device/operation_args.h"
#include "coll/device/plan_device.h"
#include "transport/cuda/cuda_errors.h"

int epx_route_dispatch_device_direct(const struct epx_request *request)
{
    int32_t top_k = epx_device_plan_of(request)->shape.top_k;
    struct epx_route_dispatch args = {.routing = epx_route_args_of(request),
                                      .rows = epx_dispatch_args_of(request)};

    if (epx_is_small_routing(request))
        args.rows.banks = epx_banks_of(request, request->comm->size, top_k);
    if (!args.rows.banks.senders)
        return epx_route_dispatch_device(request);
    args.routing.banks = args.rows.banks;
    EPX_TRY_LAUNCH(args.rows.fields.num > 1
                       ? epx_launch_route_dispatch_fields_small(&args, request->call.stream)
                       : epx_launch_route_dispatch_small(&args, request->call.stream));
    return EPX_SUCCESS;
}
