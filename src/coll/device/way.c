/* SPDX-License-Identifier: BSD-3-Clause */
/* way.c - what of a request decides about its way; tuning.c decides. */
#include "coll/device/way.h"

#include "base/log.h"
#include "coll/device/device.h"
#include "coll/device/operation_args.h"
#include "coll/device/plan_device.h"
#include "coll/verbs.h"
#include "core/route.h"

/* What the kernels do: a half of EPX_Route_dispatch is a routing, or a dispatch. */
static enum epx_verb verb_of(const struct epx_request *request)
{
    switch (request->half) {
    case EPX_HALF_ROUTING: return EPX_VERB_ROUTE_TOKENS;
    case EPX_HALF_DISPATCH: return EPX_VERB_DISPATCH;
    default: return request->call.verb;
    }
}

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

struct epx_shape epx_shape_of(const struct epx_request *request)
{
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    struct epx_shape shape = {
        .verb = verb_of(request),
        .ranks = request->comm->size,
        .route = plan->shape,
        .most_rows = plan->most_rows,
        .fields = request->call.fields.num,
        .datatype = request->call.datatype,
        .call_bytes = request->call.row_bytes,
        .row_bytes = epx_wire_row_bytes(request),
        .bank_row_bytes = bank_row_bytes(request),
    };

    shape.stays = plan->shape.rank_major && epx_takes_stores(request);
    return shape;
}

static void tell(const struct epx_request *request, const struct epx_way *way)
{
    EPX_LOG_DEBUG(
        "%s goes by %s: %d blocks send, %d take, %d slices of %lld bytes",
        epx_verb_name(request->call.verb), epx_wire_name(way->wire),
        way->banks.senders ? way->banks.senders : way->movers.senders,
        way->banks.senders ? way->banks.takers : way->movers.takers,
        way->banks.senders ? way->banks.slices.num : way->movers.slices.num,
        (long long)(way->banks.senders ? way->banks.slices.bytes : way->movers.slices.bytes));
}

const struct epx_way *epx_decide_way(const struct epx_request *request)
{
    struct epx_device *device = epx_device_of(request);
    const struct epx_shape shape = epx_shape_of(request);

    device->way = epx_way_of_shape(&device->gpu, &shape);
    device->way.banks.bank = device->bank;
    tell(request, &device->way);
    return &device->way;
}
