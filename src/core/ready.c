/* SPDX-License-Identifier: BSD-3-Clause */
/* ready.c - the first thing that every rank tells every other about an operation. */
#include "core/ready.h"

#include "core/progress.h"
#include "core/route.h"
#include "core/verdict.h"

static int64_t weights_told(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const float *weights = call->weights_in;
    int rows;

    switch (call->verb) {
    case EPX_VERB_COMBINE:
        weights = call->token_weights;
        rows = 1; /* a rank must know what its kernels do, before any other has told */
        break;
    case EPX_VERB_ROUTE_DISPATCH:
    case EPX_VERB_ROUTE_DISPATCH_FIELDS:
    case EPX_VERB_DISPATCH:
    case EPX_VERB_DISPATCH_FIELDS: rows = call->num_tokens > 0; break;
    case EPX_VERB_DISPATCH_BACKWARD: rows = call->num_rows != 0; break;
    default: return EPX_WEIGHTS_NONE;
    }
    if (weights)
        return EPX_WEIGHTS_GIVEN;
    return rows ? EPX_WEIGHTS_NONE : EPX_WEIGHTS_EITHER;
}

/* The error of the routing that the operation uses. A routing uses none: it replaces the one
 * before. */
static int routing_error(const struct epx_request *request)
{
    if (!request->route || epx_verb_routes(request->call.verb))
        return EPX_SUCCESS;
    return request->route->error;
}

static struct epx_ready_field ready_field(const struct epx_request *request, int f)
{
    const struct epx_call *call = &request->call;
    const struct epx_field *field = &call->fields.at[f];
    struct epx_ready_field told = {field->bytes, -1, 0};
    const struct epx_segment *segment;

    if (!epx_verb_dispatches(call->verb) && !epx_verb_exchanges(call->verb))
        return told;
    segment = epx_segment_find(request->comm->segments, field->out,
                               (size_t)(call->recv_capacity * field->bytes), &told.offset);
    if (segment && segment->reachable)
        told.segment = segment->id;
    return told;
}

struct epx_ready epx_ready_of(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    struct epx_ready ready = {0};

    ready.epoch = (int64_t)request->epoch;
    ready.verb = call->verb;
    ready.route = request->route ? request->route->id : -1;
    ready.error = routing_error(request);
    ready.datatype = epx_verb_computes(call->verb) ? call->datatype : EPX_DATATYPE_NULL;
    ready.weights = weights_told(request);
    ready.biases = call->num_biases;
    ready.num_fields = call->fields.num;
    for (int f = 0; f < call->fields.num; f++)
        ready.fields[f] = ready_field(request, f);
    if (call->kept && call->kept->fixed)
        ready.known = (int64_t)call->kept->fixed->known;
    /* An operation with kernels has its counts in device memory: the kernel reads them. */
    for (int r = 0; call->sendcounts && !request->launch && r < request->comm->size; r++)
        if (r != request->comm->rank && call->sendcounts[r] > ready.most_rows)
            ready.most_rows = call->sendcounts[r];
    return ready;
}

size_t epx_ready_bytes(int64_t num_fields)
{
    return offsetof(struct epx_ready, fields) +
           (size_t)num_fields * sizeof(((struct epx_ready *)0)->fields[0]);
}

int epx_ready_takes_stores(const struct epx_ready *ready)
{
    for (int64_t f = 0; f < ready->num_fields; f++)
        if (ready->fields[f].segment < 0 && ready->fields[f].bytes)
            return 0;
    return 1;
}

static int same(enum epx_told told, int64_t first, int64_t value, int rank)
{
    return first == value ? EPX_SUCCESS : epx_fail_differs(told, 0, first, value, rank);
}

/* Bytes of a row of a field; -1 = there is no such field. */
static int64_t field_bytes(const struct epx_ready *ready, int f)
{
    return f < ready->num_fields ? ready->fields[f].bytes : -1;
}

static int agree_on_fields(const struct epx_ready *first, const struct epx_ready *ready, int rank)
{
    int listed = epx_verb_has_fields((enum epx_verb)first->verb);

    for (int f = 0; f < EPX_MAX_FIELDS; f++) {
        int64_t wanted = field_bytes(first, f), found = field_bytes(ready, f);

        if (wanted != found)
            return listed ? epx_fail_field(f, wanted, found, rank)
                          : epx_fail_differs(EPX_TOLD_ROW_BYTES, 0, wanted, found, rank);
    }
    return EPX_SUCCESS;
}

static int agree_with_first(const struct epx_ready *first, const struct epx_ready *ready, int rank)
{
    EPX_TRY(same(EPX_TOLD_EPOCH, first->epoch, ready->epoch, rank));
    EPX_TRY(same(EPX_TOLD_VERB, first->verb, ready->verb, rank));
    EPX_TRY(same(EPX_TOLD_ROUTE, first->route, ready->route, rank));
    EPX_TRY(agree_on_fields(first, ready, rank));
    EPX_TRY(same(EPX_TOLD_BIASES, first->biases, ready->biases, rank));
    return same(EPX_TOLD_DATATYPE, first->datatype, ready->datatype, rank);
}

static int agree(const struct epx_ready ready[], int num_ranks, int *weighted)
{
    int64_t told = EPX_WEIGHTS_EITHER;
    int teller = 0;

    for (int r = 0; r < num_ranks; r++) {
        EPX_TRY(agree_with_first(&ready[0], &ready[r], r));
        if (ready[r].weights == EPX_WEIGHTS_EITHER)
            continue;
        if (told != EPX_WEIGHTS_EITHER && told != ready[r].weights)
            return told == EPX_WEIGHTS_NONE ? epx_fail_weights(ready[r].verb, teller, r)
                                            : epx_fail_weights(ready[r].verb, r, teller);
        told = ready[r].weights;
        teller = r;
    }
    *weighted = told == EPX_WEIGHTS_GIVEN;
    return EPX_SUCCESS;
}

/* Returns the same code on all ranks; the routing's own message where this rank has it. */
static int check_routing(const struct epx_request *request, const struct epx_ready ready[])
{
    int own = routing_error(request);

    if (own)
        return epx_fail_quietly(own, request->route->message);
    for (int r = 0; r < request->comm->size; r++)
        if (ready[r].error)
            return epx_fail_routing((int)ready[r].error, r);
    return EPX_SUCCESS;
}

int epx_ready_agree(struct epx_request *request, const struct epx_ready ready[], int *weighted)
{
    struct epx_comm *comm = request->comm;
    int rc = agree(ready, comm->size, weighted);

    request->weighted = *weighted;
    for (int r = 0; rc != EPX_SUCCESS && r < comm->size; r++)
        if (epx_verb_routes((enum epx_verb)ready[r].verb))
            epx_route_spoil(comm, ready[r].route, rc);
    return rc == EPX_SUCCESS ? check_routing(request, ready) : rc;
}

int epx_ready_skip(struct epx_request *request, int *weighted, int *moved)
{
    if (!epx_half_has_agreed(request->half))
        return 0;
    *moved = 1;
    *weighted = request->weighted;
    request->phase = EPX_PHASE_VERB;
    return 1;
}
