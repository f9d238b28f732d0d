/* SPDX-License-Identifier: BSD-3-Clause */
/* routing_device_staged.c - a routing on device memory by messages: counts, then records. */
#include "coll/device/device_verbs.h"
#include "coll/device/operation_args.h"
#include "coll/device/plan_device.h"
#include "kernels/args/control_args.h"
#include "transport/cuda/cuda_errors.h"

int epx_agree_messages(const struct epx_request *request)
{
    const struct epx_agree args = epx_agree_args_of(request);

    EPX_TRY_LAUNCH(epx_launch_agree_by_messages(&args, request->call.stream));
    return EPX_SUCCESS;
}

int epx_route_tokens_device_staged(const struct epx_request *request)
{
    struct epx_route_tokens args = epx_route_args_of(request);
    EPX_Stream stream = request->call.stream;
    int relays = args.plan.nodes.num_nodes;

    EPX_TRY(epx_agree_messages(request));
    EPX_TRY_LAUNCH(epx_launch_count_tokens(&args, stream));
    if (relays)
        EPX_TRY_LAUNCH(epx_launch_list_node_rows(&args, stream));
    EPX_TRY_LAUNCH(epx_launch_await_messages(&args.comm, stream));
    EPX_TRY_LAUNCH(epx_launch_send_records(&args, stream));
    EPX_TRY_LAUNCH(epx_launch_await_messages(&args.comm, stream));
    if (relays)
        EPX_TRY_LAUNCH(epx_launch_list_passed_rows(&args, stream));
    EPX_TRY_LAUNCH(epx_launch_find_slots(&args, stream));
    return EPX_SUCCESS;
}
