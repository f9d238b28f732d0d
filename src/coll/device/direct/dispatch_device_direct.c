/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch_device_direct.c - dispatch and combine backward on device memory. */
#include "coll/device/device_verbs.h"
#include "coll/device/direct/rests.h"
#include "coll/device/direct/small_banks.h"
#include "coll/device/operation_args.h"
#include "coll/device/plan_device.h"
#include "transport/cuda/cuda_errors.h"

/* The arguments that direct and staged have in common; each sets its own rounds. */
struct epx_dispatch_rows epx_dispatch_args_of(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    int many = epx_verb_dispatches(call->verb) && plan->shape.rank_major;
    struct epx_dispatch_rows args = {
        .comm = epx_device_comm_of(request),
        .note = epx_ready_note_of(request),
        .plan = *plan,
        .num_tokens = call->num_tokens,
        .datatype = call->datatype,
        .fields = call->fields,
        .list = epx_list_note_of(request),
        .row_bytes = call->row_bytes,
        .rows = call->fields.at[0].in,
        .weights = call->weights_in,
        .forward = call->forward_in,
        .recv = call->fields.at[0].out,
        .recv_weights = call->weights_out,
        .zeroed_to = request->route->attr.zero_unused ? call->recv_capacity : 0,
        .weights_width = many ? plan->shape.top_k : 1,
    };

    return args;
}

static int scales(const struct epx_request *request)
{
    return request->call.verb == EPX_VERB_COMBINE_BACKWARD;
}

static int queue_small(const struct epx_request *request, const struct epx_banks *banks)
{
    struct epx_dispatch_rows args = epx_dispatch_args_of(request);
    EPX_Stream stream = request->call.stream;

    args.banks = *banks;
    EPX_TRY_LAUNCH(scales(request)     ? epx_launch_scale_small(&args, stream)
                   : banks->packets_at ? epx_launch_dispatch_packets(&args, stream)
                                       : epx_launch_dispatch_small(&args, stream));
    return EPX_SUCCESS;
}

/* The arguments of an operation that is not small. */
static struct epx_dispatch_rows large_args_of(const struct epx_request *request)
{
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    struct epx_dispatch_rows args = epx_dispatch_args_of(request);

    args.rounds = epx_rounds_of(request->call.row_bytes, request->comm->size,
                                plan->shape.max_tokens, plan->stage_bytes);
    args.movers = scales(request) ? epx_grad_movers_of(request) : epx_row_movers_of(request);
    return args;
}

static int queue_movers(const struct epx_request *request, const struct epx_dispatch_rows *args)
{
    EPX_TRY_LAUNCH(scales(request) ? epx_launch_move_grads(args, request->call.stream)
                                   : epx_launch_move_rows(args, request->call.stream));
    return EPX_SUCCESS;
}

static struct epx_banks banks_of(const struct epx_request *request)
{
    int32_t top_k = epx_device_plan_of(request)->shape.top_k;

    return epx_banks_of(request, request->comm->size, scales(request) ? 0 : top_k);
}

int epx_dispatch_device_direct(const struct epx_request *request)
{
    struct epx_banks banks = banks_of(request);
    struct epx_dispatch_rows args;

    if (banks.senders) {
        banks.phase = epx_first_phase(request, 1);
        return queue_small(request, &banks);
    }
    args = large_args_of(request);
    if (args.rounds.num == 1)
        args.movers.phase = epx_first_phase(request, 0);
    EPX_TRY_LAUNCH(epx_launch_dispatch_rows(&args, request->call.stream));
    return queue_movers(request, &args);
}

int epx_dispatch_takes_device_direct(const struct epx_request *request)
{
    struct epx_banks banks = banks_of(request);
    struct epx_dispatch_rows args;

    if (banks.senders) {
        banks.phase = EPX_PHASE_TAKE;
        return queue_small(request, &banks);
    }
    args = large_args_of(request);
    args.movers.phase = EPX_PHASE_TAKE;
    return queue_movers(request, &args);
}
