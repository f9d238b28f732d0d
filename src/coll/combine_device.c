/* SPDX-License-Identifier: BSD-3-Clause */
/* combine_device.c - combine and dispatch backward on device memory. */
#include "cuda_errors.h"
#include "device.h"

static int store_chunk(const void *args, struct epx_chunk chunk, EPX_Stream stream)
{
    return epx_launch_store_sums(args, chunk, stream);
}

static int take_chunk(const void *args, struct epx_chunk chunk, EPX_Stream stream)
{
    return epx_launch_sum_ranks(args, chunk, stream);
}

int epx_combine_device(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    int32_t num;
    struct epx_combine_rows args = {
        .comm = epx_device_comm_of(request),
        .note = epx_ready_note_of(request),
        .plan = *plan,
        .rounds = epx_rounds_of(call->row_bytes, plan->most_rows, plan->max_tokens,
                                plan->stage_bytes),
        .chunks = epx_device_chunks(request),
        .num_tokens = call->num_tokens,
        .backward = call->verb == EPX_VERB_DISPATCH_BACKWARD,
        .datatype = call->datatype,
        .row_bytes = call->row_bytes,
        .rows = call->rows_in,
        .weights = call->weights_in,
        .sums = call->rows_out,
        .grad_weights = call->weights_out,
    };
    struct epx_chunk_steps steps = {store_chunk, take_chunk, &args};

    args.chunks = args.rounds.num == 1 ? args.chunks : 0;
    num = args.chunks ? args.chunks : 1;
    EPX_TRY_LAUNCH(epx_launch_combine_rows(&args, call->stream));
    if (args.chunks)
        EPX_TRY(epx_device_queue_chunks(request, &args.comm, num, steps));
    EPX_TRY_LAUNCH(epx_launch_sum_ranks(&args, epx_chunk_of(num - 1, num, plan->max_tokens),
                                        call->stream));
    return EPX_SUCCESS;
}
