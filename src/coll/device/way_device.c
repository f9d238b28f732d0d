/* SPDX-License-Identifier: BSD-3-Clause */
/* way_device.c - the way of an operation is decided here: coll/tuning.c is told its shape. */
#include "base/log.h"
#include "coll/device/device.h"
#include "coll/device/device_verbs.h"
#include "coll/device/operation_args.h"
#include "coll/device/plan_device.h"
#include "coll/verbs.h"

/* Bytes that a row takes in a bank. */
static int64_t bank_row_bytes(const struct epx_request *request)
{
    const struct epx_fields *fields = &request->call.fields;
    int64_t bytes = 0;

    if (fields->num <= 1)
        return epx_bytes_in_bank(epx_wire_row_bytes(request));
    for (int f = 0; f < fields->num; f++)
        bytes += epx_bytes_in_bank(fields->at[f].bytes);
    return bytes;
}

static struct epx_shape shape_of(const struct epx_request *request)
{
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    const struct epx_call *call = &request->call;
    struct epx_shape shape = {
        .ranks = request->comm->size,
        .route = plan->shape,
        .most_rows = plan->most_rows,
        .fields = call->fields.num,
        .datatype = call->datatype,
        .call_bytes = call->row_bytes,
        .row_bytes = epx_wire_row_bytes(request),
        .bank_row_bytes = bank_row_bytes(request),
        .stage_bytes = plan->stage_bytes,
        .message_rows = plan->nodes.width,
        .tells_kept = epx_tells_kept(&plan->shape) && plan->nodes.num_nodes,
    };

    epx_shape_set_verb(&shape, epx_kernels_verb(request));
    shape.biased = call->num_biases > 0;
    shape.given_weights = call->token_weights != NULL;
    shape.stays = plan->shape.rank_major && epx_takes_stores(request);
    return shape;
}

static void tell(const struct epx_request *request, const struct epx_way *way)
{
    const char *name = epx_verb_name(request->call.verb);
    const int small = way->banks.senders > 0;
    const struct epx_slices *slices = small ? &way->banks.slices : &way->movers.slices;

    if (!small && !way->movers.receivers)
        EPX_LOG_DEBUG("%s routes by %s", name, way->routes_small ? "ids" : "records");
    else if (way->wire == EPX_WIRE_STAGES || way->wire == EPX_WIRE_MESSAGES)
        EPX_LOG_DEBUG("%s goes by %s, %lld rounds", name, epx_wire_name(way->wire),
                      (long long)way->rounds.num);
    else
        EPX_LOG_DEBUG(
            "%s goes by %s: %d blocks send, %d take, %d slices of %lld bytes, %lld rounds", name,
            epx_wire_name(way->wire), small ? way->banks.senders : way->movers.senders,
            small ? way->banks.receivers : way->movers.receivers, slices->num,
            (long long)slices->bytes, small ? 1LL : (long long)way->rounds.num);
}

/* Nothing is told of an EPX_Route_dispatch that is two halves: each of them has its own way. */
void epx_device_decide(const struct epx_request *request)
{
    struct epx_device *device = epx_device_of(request);
    const struct epx_shape shape = shape_of(request);
    struct epx_way *way = &device->way;

    *way = epx_way_of_shape(&device->gpu, &shape);
    way->banks.bank = device->bank;
    if (way->banks.senders || !shape.routes || shape.flow == EPX_FLOW_NONE)
        tell(request, way);
}
