/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dispatch_device_staged.c - dispatch and combine backward on device memory by messages: rows are
 * packed, exchanged with the counts of the routing and unpacked by the records. Where nodes have
 * several ranks a row crosses to another node once, to a relay that passes it on.
 */
#include "coll/device/device_verbs.h"
#include "coll/device/operation_args.h"
#include "kernels/args/control_args.h"
#include "transport/cuda/cuda_errors.h"

int epx_dispatch_device_staged(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    int scales = call->verb == EPX_VERB_COMBINE_BACKWARD;
    struct epx_dispatch_rows args = epx_dispatch_args_of(request);

    args.movers = epx_decide_way(request)->movers;
    args.rounds = epx_message_rounds_of(request, scales ? 0 : args.plan.shape.top_k);
    if (!epx_half_has_agreed(request->half))
        EPX_TRY(epx_agree_messages(request));
    if (args.rounds.num > 1) {
        EPX_TRY_LAUNCH(epx_launch_dispatch_rounds(&args, call->stream));
    } else {
        EPX_TRY_LAUNCH(epx_launch_pack_rows(&args, call->stream));
        EPX_TRY_LAUNCH(epx_launch_await_messages(&args.comm, call->stream));
        if (args.plan.nodes.num_nodes) {
            EPX_TRY_LAUNCH(epx_launch_pass_rows(&args, call->stream));
            EPX_TRY_LAUNCH(epx_launch_await_messages(&args.comm, call->stream));
        }
        EPX_TRY_LAUNCH(epx_launch_unpack_rows(&args, call->stream));
    }
    EPX_TRY_LAUNCH(scales ? epx_launch_move_grads(&args, call->stream)
                          : epx_launch_move_rows(&args, call->stream));
    return EPX_SUCCESS;
}
