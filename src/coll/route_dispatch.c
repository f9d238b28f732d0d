/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_dispatch.c - EPX_Route_dispatch on grounds that have no faster way: the ground's routing,
 * then its dispatch, as one operation of one number.
 *
 * EPX_Route_dispatch is a verb of its own, in the tables of the grounds and on the wire. A ground
 * that does small routes in one launch has a function of its own there, which leaves the other
 * routes to the function that all grounds have now: on host memory the one below, on device memory
 * epx_route_dispatch_device. Whether a route is small must follow from what all ranks share.
 *
 * The ranks agree once, on EPX_Route_dispatch, before its routing: they tell then what either half
 * must agree on, and where rows may be put. So the dispatch begins in the step in which the routing
 * ends, without another handshake, and what does not fit together is found before anything is
 * routed. Only hier tells ready words again, because the length of its blocks follows from the
 * routing. A rank that calls EPX_Route_tokens and EPX_Dispatch instead meets EPX_Route_dispatch
 * with the first of them, which is an error on all ranks, as for any two functions: one launch
 * would send other things than two calls do.
 *
 * Why a rank may dispatch to one that still routes: the ready words of the latter, told before the
 * routing, say that its receive buffer, ring and stage may be written. A routing uses none of them
 * but the stages, in exchanges that all ranks make in the same order. And all ranks come to the
 * same verdict on overflow before they send records, because all have the same counts.
 */
#include <stdio.h>

#include "coll/ground.h"
#include "coll/verbs.h"
#include "core/ready.h"

static int step_of(struct epx_request *request, enum epx_verb verb, int *moved)
{
    return epx_transport_of(request)->ground->step[verb](request, moved);
}

/* Bad ids, which leave the routing valid, are kept until the dispatch is through. */
static void begin_dispatch(struct epx_request *request, int routing_error)
{
    request->error = routing_error;
    if (routing_error)
        snprintf(request->message, sizeof(request->message), "%s", epx_status_message());
    request->half = EPX_HALF_DISPATCH;
    request->phase = EPX_PHASE_POST;
    request->complete = 0;
}

static int dispatch(struct epx_request *request, int *moved)
{
    EPX_TRY(step_of(request, EPX_VERB_DISPATCH, moved));
    if (!request->complete || !request->error)
        return EPX_SUCCESS;
    return epx_fail_quietly(request->error, request->message);
}

int epx_route_dispatch_in_turn(struct epx_request *request, int *moved)
{
    int rc, began = 0;

    if (request->half == EPX_HALF_DISPATCH)
        return dispatch(request, moved);
    request->half = EPX_HALF_ROUTING;
    rc = step_of(request, EPX_VERB_ROUTE_TOKENS, moved);
    if (!request->complete)
        return rc;
    begin_dispatch(request, rc);
    return dispatch(request, &began);
}
