/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs.h - how an operation on host memory begins. Dispatch and combine backward scatter a home
 * rank's rows to the experts; combine and dispatch backward gather the experts' rows and sum them
 * at home: two flows serve the four verbs. Each ground has an algorithm for each flow.
 */
#ifndef EPX_COLL_VERBS_H
#define EPX_COLL_VERBS_H

#include "core/request.h"
#include "core/route.h"
#include "kernels/host/host_kernels.h"

/* Collective, agreed: the plan, its windows and the view of a new route on host memory. */
int epx_routing_create(struct epx_route *route);

/* The type of the sums that travel in the second flow. */
static inline EPX_Datatype epx_partial_type(const struct epx_request *request)
{
    EPX_Datatype datatype = request->call.datatype;

    if (!epx_verb_adds(request->call.verb) ||
        request->comm->params.combine_partials == EPX_PARTIALS_DATATYPE)
        return datatype;
    return epx_datatype_bytes(datatype) < epx_datatype_bytes(EPX_FLOAT32) ? EPX_FLOAT32 : datatype;
}

/* The bytes of a row as it travels. */
static inline int64_t epx_wire_row_bytes(const struct epx_request *request)
{
    if (!epx_verb_adds(request->call.verb))
        return request->call.row_bytes;
    return request->call.row_bytes / epx_datatype_bytes(request->call.datatype) *
           epx_datatype_bytes(epx_partial_type(request));
}

/* The operation as the home ranks and as the experts' ranks see it. */
struct epx_home_rows epx_home_rows_of(const struct epx_request *request, struct epx_segments cut,
                                      int weighted);
struct epx_expert_rows epx_expert_rows_of(const struct epx_request *request,
                                          struct epx_segments cut, int weighted, double *sums);
/* EPX_Route_dispatch by the ground's routing and dispatch, one after the other. */
int epx_route_dispatch_in_turn(struct epx_request *request, int *moved);
/*
 * Combine and dispatch backward once the ranks have agreed that weights travel: of the latter they
 * go home with the rows. Of a combine they are the home ranks', which must be at the experts before
 * rows are summed: then this returns 1 before the first half, and each step of that is
 * epx_combine_weights. Else returns 0, and *weighted tells whether weights go home.
 */
int epx_combine_splits(struct epx_request *request, int *weighted);
int epx_combine_weights(struct epx_request *request, int *moved);
/* The first half of such a combine as a dispatch: of weights alone, to row_weights [capacity]. */
static inline struct epx_call epx_weights_call(const struct epx_call *call, float *row_weights)
{
    const struct epx_field none = {call->token_weights, row_weights, 0};
    struct epx_call weights = {.verb = EPX_VERB_DISPATCH,
                               .stream = call->stream,
                               .datatype = call->datatype,
                               .fields = {1, {none}},
                               .num_tokens = call->num_tokens,
                               .weights_in = call->token_weights,
                               .weights_out = row_weights,
                               .recv_capacity = call->recv_capacity};

    return weights;
}
/* Work that needs no other rank: padding, gradients of pairs that do not travel, statistics. */
void epx_moves_begin(struct epx_request *request, int weighted);

#endif
