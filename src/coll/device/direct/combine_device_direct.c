/* SPDX-License-Identifier: BSD-3-Clause */
/* combine_device_direct.c - combine and dispatch backward on device memory. */
#include "coll/device/device_verbs.h"
#include "coll/device/operation_args.h"
#include "coll/device/plan_device.h"
#include "coll/verbs.h"
#include "transport/cuda/cuda_errors.h"

/* The arguments that direct and staged have in common; each sets its own rounds. */
struct epx_combine_rows epx_combine_args_of(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    struct epx_combine_rows args = {
        .comm = epx_device_comm_of(request),
        .note = epx_ready_note_of(request),
        .plan = *epx_device_plan_of(request),
        .num_tokens = call->num_tokens,
        .backward = call->verb == EPX_VERB_DISPATCH_BACKWARD,
        .datatype = call->datatype,
        .wide = epx_partial_type(request) != call->datatype,
        .row_bytes = epx_wire_row_bytes(request),
        .rows = call->fields.at[0].in,
        .weights = call->weights_in,
        .sums = call->fields.at[0].out,
        .grad_weights = call->weights_out,
    };

    return args;
}

int epx_combine_device_direct(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    struct epx_combine_rows args = epx_combine_args_of(request);

    args.rounds =
        epx_rounds_of(args.row_bytes, plan->most_rows, plan->shape.max_tokens, plan->stage_bytes);
    args.banks = epx_banks_of(request, plan->most_rows, args.backward ? plan->shape.top_k : 0);
    if (args.banks.senders) {
        args.rounds.cut = epx_segments_cut(args.row_bytes, args.row_bytes);
        EPX_TRY_LAUNCH(epx_launch_combine_small(&args, call->stream));
        return EPX_SUCCESS;
    }
    args.movers = epx_sum_movers_of(request);
    EPX_TRY_LAUNCH(epx_launch_combine_rows(&args, call->stream));
    EPX_TRY_LAUNCH(epx_launch_move_sums(&args, call->stream));
    return EPX_SUCCESS;
}
