/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * moves_device_direct.c - dispatch, combine and their backwards on device memory. A small one is
 * one launch, and so is a combine in rounds. Of others the first kernel is where the ranks agree,
 * and the second moves the rows.
 */
#include "coll/device/device.h"
#include "coll/device/device_verbs.h"
#include "coll/device/direct/rests.h"
#include "transport/cuda/cuda_errors.h"

static int queue_agreement(const struct epx_request *request)
{
    const struct epx_agree args = epx_agree_args_of(request);

    EPX_TRY_LAUNCH(epx_launch_agree(&args, request->call.stream));
    return EPX_SUCCESS;
}

static int queue_rows(const struct epx_request *request, const struct epx_way *way, int32_t phase)
{
    const int scales = request->call.verb == EPX_VERB_COMBINE_BACKWARD;
    struct epx_dispatch_rows args = epx_dispatch_args_of(request);
    EPX_Stream stream = request->call.stream;

    args.rounds = way->rounds;
    args.banks = way->banks;
    args.movers = way->movers;
    args.banks.phase = args.movers.phase = phase;
    if (way->banks.senders) {
        EPX_TRY_LAUNCH(scales                          ? epx_launch_scale_small(&args, stream)
                       : way->wire == EPX_WIRE_PACKETS ? epx_launch_dispatch_packets(&args, stream)
                                                       : epx_launch_dispatch_small(&args, stream));
        return EPX_SUCCESS;
    }
    if (phase != EPX_PHASE_TAKE && way->in_rounds)
        EPX_TRY_LAUNCH(epx_launch_dispatch_rounds(&args, stream));
    else if (phase != EPX_PHASE_TAKE)
        EPX_TRY(queue_agreement(request));
    EPX_TRY_LAUNCH(scales ? epx_launch_move_grads(&args, stream)
                          : epx_launch_move_rows(&args, stream));
    return EPX_SUCCESS;
}

static int queue_sums(const struct epx_request *request, const struct epx_way *way, int32_t phase)
{
    struct epx_combine_rows args = epx_combine_args_of(request);
    EPX_Stream stream = request->call.stream;

    args.rounds = way->rounds;
    args.banks = way->banks;
    args.movers = way->movers;
    args.banks.phase = args.movers.phase = phase;
    if (way->banks.senders) {
        EPX_TRY_LAUNCH(way->wire == EPX_WIRE_PACKETS ? epx_launch_combine_packets(&args, stream)
                                                     : epx_launch_combine_small(&args, stream));
        return EPX_SUCCESS;
    }
    if (way->wire == EPX_WIRE_STAGES) {
        EPX_TRY_LAUNCH(epx_launch_combine_rounds(&args, stream));
        return EPX_SUCCESS;
    }
    if (phase != EPX_PHASE_TAKE)
        EPX_TRY(queue_agreement(request));
    EPX_TRY_LAUNCH(epx_launch_move_sums(&args, stream));
    return EPX_SUCCESS;
}

int epx_dispatch_device_direct(const struct epx_request *request)
{
    const struct epx_way *way = &epx_device_of(request)->way;

    return queue_rows(request, way, epx_first_phase(request, way));
}

int epx_combine_device_direct(const struct epx_request *request)
{
    const struct epx_way *way = &epx_device_of(request)->way;

    return queue_sums(request, way, epx_first_phase(request, way));
}

int epx_dispatch_takes_device_direct(const struct epx_request *request)
{
    return queue_rows(request, &epx_device_of(request)->way, EPX_PHASE_TAKE);
}

int epx_combine_takes_device_direct(const struct epx_request *request)
{
    return queue_sums(request, &epx_device_of(request)->way, EPX_PHASE_TAKE);
}
