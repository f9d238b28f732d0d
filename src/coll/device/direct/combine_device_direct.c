/* SPDX-License-Identifier: BSD-3-Clause */
/* combine_device_direct.c - combine and dispatch backward on device memory. */
#include "coll/device/device_verbs.h"
#include "coll/device/direct/rests.h"
#include "coll/device/direct/small_banks.h"
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

/* The arguments of an operation that is not small. */
static struct epx_combine_rows large_args_of(const struct epx_request *request)
{
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    struct epx_combine_rows args = epx_combine_args_of(request);

    args.rounds =
        epx_rounds_of(args.row_bytes, plan->most_rows, plan->shape.max_tokens, plan->stage_bytes);
    args.movers = epx_sum_movers_of(request);
    return args;
}

static int queue_small(const struct epx_request *request, const struct epx_banks *banks)
{
    struct epx_combine_rows args = large_args_of(request);

    args.banks = *banks;
    args.rounds.cut = epx_segments_cut(args.row_bytes, args.row_bytes);
    EPX_TRY_LAUNCH(banks->packets_at ? epx_launch_combine_packets(&args, request->call.stream)
                                     : epx_launch_combine_small(&args, request->call.stream));
    return EPX_SUCCESS;
}

static struct epx_banks banks_of(const struct epx_request *request)
{
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    int backward = request->call.verb == EPX_VERB_DISPATCH_BACKWARD;

    return epx_banks_of(request, plan->most_rows, backward ? plan->shape.top_k : 0);
}

int epx_combine_device_direct(const struct epx_request *request)
{
    struct epx_banks banks = banks_of(request);
    struct epx_combine_rows args;

    if (banks.senders) {
        banks.phase = epx_first_phase(request, 1);
        return queue_small(request, &banks);
    }
    args = large_args_of(request);
    if (args.rounds.num == 1)
        args.movers.phase = epx_first_phase(request, 0);
    EPX_TRY_LAUNCH(epx_launch_combine_rows(&args, request->call.stream));
    EPX_TRY_LAUNCH(epx_launch_move_sums(&args, request->call.stream));
    return EPX_SUCCESS;
}

int epx_combine_takes_device_direct(const struct epx_request *request)
{
    struct epx_banks banks = banks_of(request);
    struct epx_combine_rows args;

    if (banks.senders) {
        banks.phase = EPX_PHASE_TAKE;
        return queue_small(request, &banks);
    }
    args = large_args_of(request);
    args.movers.phase = EPX_PHASE_TAKE;
    EPX_TRY_LAUNCH(epx_launch_move_sums(&args, request->call.stream));
    return EPX_SUCCESS;
}
