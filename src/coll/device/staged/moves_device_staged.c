/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * moves_device_staged.c - dispatch, combine and their backwards on device memory by messages, round
 * by round. Dispatch: rows are packed, exchanged with the counts of the routing and unpacked by the
 * records. Combine: the sum of each row's pairs goes home, where the sums of each token are added.
 * Where nodes have several ranks a row crosses to or from another node once, by relays: they pass
 * rows on, or add the sums of their node and send the results home. Weights of the home ranks go to
 * the experts first, as a dispatch of rows of no bytes.
 */
#include "coll/device/device.h"
#include "coll/device/device_verbs.h"
#include "coll/device/staged/rounds_stream.h"
#include "coll/verbs.h"
#include "kernels/args/control_args.h"
#include "transport/cuda/cuda_errors.h"

static int queue_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    EPX_TRY_LAUNCH(epx_launch_pack_rows(args, stream));
    EPX_TRY_LAUNCH(epx_launch_await_messages(&args->comm, stream));
    if (args->plan.nodes.num_nodes) {
        EPX_TRY_LAUNCH(epx_launch_pass_rows(args, stream));
        EPX_TRY_LAUNCH(epx_launch_await_messages(&args->comm, stream));
    }
    EPX_TRY_LAUNCH(epx_launch_unpack_rows(args, stream));
    return EPX_SUCCESS;
}

static int queue_sums(const struct epx_combine_rows *args, EPX_Stream stream)
{
    EPX_TRY_LAUNCH(epx_launch_pack_sums(args, stream));
    EPX_TRY_LAUNCH(epx_launch_await_messages(&args->comm, stream));
    if (args->plan.nodes.num_nodes) {
        EPX_TRY_LAUNCH(epx_launch_pass_sums(args, stream));
        EPX_TRY_LAUNCH(epx_launch_await_messages(&args->comm, stream));
    }
    EPX_TRY_LAUNCH(epx_launch_unpack_sums(args, stream));
    return EPX_SUCCESS;
}

int epx_dispatch_device_staged(const struct epx_request *request)
{
    const struct epx_way *way = &epx_device_of(request)->way;
    const int scales = request->call.verb == EPX_VERB_COMBINE_BACKWARD;
    struct epx_dispatch_rows args = epx_dispatch_args_of(request);
    EPX_Stream stream;

    args.movers = way->movers;
    args.rounds = way->rounds;
    if (!epx_half_has_agreed(request->half))
        EPX_TRY(epx_agree_messages(request));
    EPX_TRY(epx_rounds_begin(request, args.rounds.num, &stream));
    for (int64_t i = 0; i < args.rounds.num; i++) {
        args.round = epx_round_of(&args.rounds, i);
        EPX_TRY(queue_rows(&args, stream));
    }
    EPX_TRY_LAUNCH(scales ? epx_launch_move_grads(&args, stream)
                          : epx_launch_move_rows(&args, stream));
    return epx_rounds_end(request, stream);
}

/* Queues the dispatch of weights alone, behind the agreement of the ranks. */
static int queue_weights(const struct epx_request *request, float *row_weights)
{
    struct epx_request weights = *request;

    weights.half = EPX_HALF_WEIGHTS;
    weights.call = epx_weights_call(&request->call, row_weights);
    return epx_device_queue(&weights);
}

int epx_combine_device_staged(const struct epx_request *request)
{
    struct epx_combine_rows args = epx_combine_args_of(request);
    EPX_Stream stream;

    args.rounds = epx_device_of(request)->way.rounds;
    EPX_TRY(epx_agree_messages(request));
    if (args.given) {
        args.weights = args.plan.row_weights;
        args.given = 0;
        EPX_TRY(queue_weights(request, args.plan.row_weights));
    }
    EPX_TRY(epx_rounds_begin(request, args.rounds.num, &stream));
    for (int64_t i = 0; i < args.rounds.num; i++) {
        args.round = epx_round_of(&args.rounds, i);
        EPX_TRY(queue_sums(&args, stream));
    }
    return epx_rounds_end(request, stream);
}
