/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_device_staged.c - combine and dispatch backward on device memory by messages: the sum of
 * each row's pairs goes home, where the sums of each token are added. Where nodes have several
 * ranks, the sums for homes on another node go to relays on this node, which add them and send the
 * results home. Weights of the home ranks go to the experts first.
 */
#include "coll/device/device_verbs.h"
#include "coll/device/operation_args.h"
#include "coll/verbs.h"
#include "kernels/args/control_args.h"
#include "transport/cuda/cuda_errors.h"

/* Queues the dispatch of weights alone, behind the agreement of the ranks. */
static int queue_weights(const struct epx_request *request, float *row_weights)
{
    struct epx_request weights = *request;

    weights.half = EPX_HALF_WEIGHTS;
    weights.call = epx_weights_call(&request->call, row_weights);
    return epx_dispatch_device_staged(&weights);
}

int epx_combine_device_staged(const struct epx_request *request)
{
    EPX_Stream stream = request->call.stream;
    struct epx_combine_rows args = epx_combine_args_of(request);
    int tells_kept = epx_tells_kept(&args.plan.shape) && args.plan.nodes.num_nodes;

    args.rounds =
        epx_message_rounds_of(request, (args.backward ? args.plan.shape.top_k : 0) + tells_kept);
    EPX_TRY(epx_agree_messages(request));
    if (request->call.token_weights) {
        args.weights = args.plan.row_weights;
        EPX_TRY(queue_weights(request, args.plan.row_weights));
    }
    if (args.rounds.num > 1) {
        EPX_TRY_LAUNCH(epx_launch_combine_rounds(&args, stream));
        return EPX_SUCCESS;
    }
    EPX_TRY_LAUNCH(epx_launch_pack_sums(&args, stream));
    EPX_TRY_LAUNCH(epx_launch_await_messages(&args.comm, stream));
    if (args.plan.nodes.num_nodes) {
        EPX_TRY_LAUNCH(epx_launch_pass_sums(&args, stream));
        EPX_TRY_LAUNCH(epx_launch_await_messages(&args.comm, stream));
    }
    EPX_TRY_LAUNCH(epx_launch_unpack_sums(&args, stream));
    return EPX_SUCCESS;
}
