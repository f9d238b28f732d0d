/* SPDX-License-Identifier: BSD-3-Clause */
/* combine_device.c - combine and dispatch backward on device memory. */
#include "cuda_errors.h"
#include "device.h"

/* Chunks are summed at home on a stream beside, while later ones are stored. */
static int queue_chunks(const struct epx_request *request, const struct epx_combine_rows *args,
                        int32_t num)
{
    EPX_Stream stream = request->call.stream, beside;
    int32_t tokens = args->plan.max_tokens;

    EPX_TRY(epx_device_fork(request, &beside));
    for (int32_t i = 0; i < num; i++)
        EPX_TRY_LAUNCH(epx_launch_store_sums(args, epx_chunk_of(i, num, tokens), stream));
    for (int32_t i = 0; i < num - 1; i++) {
        EPX_TRY_LAUNCH(epx_launch_await_rows(&args->comm, epx_chunk_of(i, num, tokens), beside));
        EPX_TRY_LAUNCH(epx_launch_sum_ranks(args, epx_chunk_of(i, num, tokens), beside));
    }
    EPX_TRY(epx_device_join(request));
    EPX_TRY_LAUNCH(epx_launch_await_rows(&args->comm, epx_chunk_of(num - 1, num, tokens), stream));
    return EPX_SUCCESS;
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

    args.chunks = args.rounds.num == 1 ? args.chunks : 0;
    num = args.chunks ? args.chunks : 1;
    EPX_TRY_LAUNCH(epx_launch_combine_rows(&args, call->stream));
    if (args.chunks)
        EPX_TRY(queue_chunks(request, &args, num));
    EPX_TRY_LAUNCH(epx_launch_sum_ranks(&args, epx_chunk_of(num - 1, num, plan->max_tokens),
                                        call->stream));
    return EPX_SUCCESS;
}
