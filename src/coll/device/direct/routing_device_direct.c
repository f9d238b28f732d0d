/* SPDX-License-Identifier: BSD-3-Clause */
/* routing_device_direct.c - a routing on device memory, in one launch. */
#include "coll/device/device.h"
#include "coll/device/device_verbs.h"
#include "coll/device/operation_args.h"
#include "coll/device/plan_device.h"
#include "transport/cuda/cuda_errors.h"

struct epx_route_tokens epx_route_args_of(const struct epx_request *request)
{
    struct epx_route_tokens args = {
        .comm = epx_device_comm_of(request),
        .note = epx_ready_note_of(request),
        .plan = *epx_device_plan_of(request),
        .ids = request->call.expert_ids,
        .num_tokens = request->call.num_tokens,
        .capacity = (int32_t)request->call.recv_capacity,
        .counts = request->call.counts,
        .halves = epx_device_of(request)->gpu.halves,
    };

    return args;
}

int epx_route_tokens_device_direct(const struct epx_request *request)
{
    const struct epx_way *way = &epx_device_of(request)->way;
    struct epx_route_tokens args = epx_route_args_of(request);

    if (way->routes_small) {
        args.banks.bank = way->banks.bank;
        EPX_TRY_LAUNCH(epx_launch_route_small(&args, request->call.stream));
        return EPX_SUCCESS;
    }
    EPX_TRY_LAUNCH(epx_launch_route_tokens(&args, request->call.stream));
    return EPX_SUCCESS;
}
