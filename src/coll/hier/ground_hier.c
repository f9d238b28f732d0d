/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ground_hier.c - host memory, with shared memory inside a node and messages between nodes. An
 * alltoallv has no rows that several ranks of a node need: all of it goes in messages.
 */
#include "coll/hier/hier.h"
#include "coll/verbs.h"

const struct epx_ground epx_ground_hier = {
    .name = "hier",
    .usable = epx_hier_usable,
    .create = epx_hier_create,
    .free = epx_hier_free,
    .route_create = epx_routing_create,
    .lacks = epx_staged_lacks,
    .plan_create = epx_node_plan_create,
    .graph_create = epx_graph_create_staged,
    .step =
        {
            [EPX_VERB_ROUTE_TOKENS] = epx_route_tokens_hier,
            [EPX_VERB_ROUTE_DISPATCH] = epx_route_dispatch_in_turn,
            [EPX_VERB_ROUTE_DISPATCH_FIELDS] = epx_route_dispatch_in_turn,
            [EPX_VERB_DISPATCH] = epx_move_hier,
            [EPX_VERB_DISPATCH_FIELDS] = epx_move_hier,
            [EPX_VERB_COMBINE] = epx_move_hier,
            [EPX_VERB_DISPATCH_BACKWARD] = epx_move_hier,
            [EPX_VERB_COMBINE_BACKWARD] = epx_move_hier,
            [EPX_VERB_ALLTOALLV] = epx_alltoallv_staged,
            [EPX_VERB_NEIGHBOR_ALLTOALLV] = epx_alltoallv_staged,
        },
};
