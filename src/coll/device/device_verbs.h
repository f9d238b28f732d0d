/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_verbs.h - how the kernels of one operation are queued on its stream: direct, where ranks
 * store into each other's windows, and staged, where they exchange messages.
 */
#ifndef EPX_COLL_DEVICE_DEVICE_VERBS_H
#define EPX_COLL_DEVICE_DEVICE_VERBS_H

#include "core/request.h"
#include "kernels/args/alltoallv_args.h"
#include "kernels/args/control_args.h"
#include "kernels/args/route_args.h"
#include "kernels/args/row_args.h"
#include "kernels/args/sum_args.h"

/* What the kernels do: a half of EPX_Route_dispatch is a routing, or a dispatch. */
static inline enum epx_verb epx_kernels_verb(const struct epx_request *request)
{
    switch (request->half) {
    case EPX_HALF_ROUTING: return EPX_VERB_ROUTE_TOKENS;
    case EPX_HALF_DISPATCH: return EPX_VERB_DISPATCH;
    default: return request->call.verb;
    }
}

/* Local: decides the way of an operation on a route, or of its half that is under way. The device
 * keeps it until the next one is queued: a second phase goes the same way. */
void epx_device_decide(const struct epx_request *request);
/* Local: decides the way and queues the kernels. */
int epx_device_queue(const struct epx_request *request);

/* Local: called by epx_device_queue. */
int epx_route_tokens_device_direct(const struct epx_request *request);
int epx_route_dispatch_device_direct(const struct epx_request *request);
int epx_dispatch_device_direct(const struct epx_request *request);
int epx_combine_device_direct(const struct epx_request *request);
int epx_alltoallv_device_direct(const struct epx_request *request);
int epx_neighbor_device_direct(const struct epx_request *request);

/* Local: what the call of an operation in two phases has left. */
int epx_dispatch_takes_device_direct(const struct epx_request *request);
int epx_combine_takes_device_direct(const struct epx_request *request);
int epx_route_dispatch_takes_device(const struct epx_request *request);
int epx_route_dispatch_takes_device_direct(const struct epx_request *request);

/* EPX_Route_dispatch by the ground's routing and dispatch, one after the other. */
int epx_route_dispatch_device(const struct epx_request *request);

int epx_route_tokens_device_staged(const struct epx_request *request);
int epx_dispatch_device_staged(const struct epx_request *request);
int epx_combine_device_staged(const struct epx_request *request);
int epx_alltoallv_device_staged(const struct epx_request *request);
int epx_neighbor_device_staged(const struct epx_request *request);

/* The first step of every staged operation: ranks agree on what it is. */
int epx_agree_messages(const struct epx_request *request);

/* The arguments of kernels that direct and staged have in common; each sets rounds, banks and
 * movers. */
struct epx_agree epx_agree_args_of(const struct epx_request *request);
struct epx_route_tokens epx_route_args_of(const struct epx_request *request);
struct epx_dispatch_rows epx_dispatch_args_of(const struct epx_request *request);
struct epx_combine_rows epx_combine_args_of(const struct epx_request *request);
struct epx_alltoallv_rows epx_alltoallv_args_of(const struct epx_request *request);
struct epx_neighbor_rows epx_neighbor_args_of(const struct epx_request *request);

#endif
