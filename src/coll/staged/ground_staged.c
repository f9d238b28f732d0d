/* SPDX-License-Identifier: BSD-3-Clause */
/* ground_staged.c - host memory, where ranks send each other messages. */
#include "coll/staged/staged.h"
#include "coll/verbs.h"

static int create(struct epx_transport *transport)
{
    return epx_staged_create(transport, 0);
}

const struct epx_ground epx_ground_staged = {
    .name = "staged",
    .create = create,
    .free = epx_staged_free,
    .route_create = epx_routing_create,
    .lacks = epx_staged_lacks,
    .graph_create = epx_graph_create_staged,
    .step =
        {
            [EPX_VERB_ROUTE_TOKENS] = epx_route_tokens_staged,
            [EPX_VERB_ROUTE_DISPATCH] = epx_route_dispatch_in_turn,
            [EPX_VERB_ROUTE_DISPATCH_FIELDS] = epx_route_dispatch_in_turn,
            [EPX_VERB_DISPATCH] = epx_move_staged,
            [EPX_VERB_DISPATCH_FIELDS] = epx_move_staged,
            [EPX_VERB_COMBINE] = epx_move_staged,
            [EPX_VERB_DISPATCH_BACKWARD] = epx_move_staged,
            [EPX_VERB_COMBINE_BACKWARD] = epx_move_staged,
            [EPX_VERB_ALLTOALLV] = epx_alltoallv_staged,
            [EPX_VERB_NEIGHBOR_ALLTOALLV] = epx_alltoallv_staged,
        },
};
