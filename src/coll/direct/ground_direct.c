/* SPDX-License-Identifier: BSD-3-Clause */
/* ground_direct.c - host memory, where ranks store into each other's windows. */
#include "coll/direct/direct.h"
#include "coll/verbs.h"

const struct epx_ground epx_ground_direct = {
    .name = "direct",
    .create = epx_direct_create,
    .free = epx_direct_free,
    .route_create = epx_routing_create,
    .lacks = epx_direct_lacks,
    .step =
        {
            [EPX_VERB_ROUTE_TOKENS] = epx_route_tokens_direct,
            [EPX_VERB_ROUTE_DISPATCH] = epx_route_dispatch_in_turn,
            [EPX_VERB_ROUTE_DISPATCH_FIELDS] = epx_route_dispatch_in_turn,
            [EPX_VERB_DISPATCH] = epx_dispatch_direct,
            [EPX_VERB_DISPATCH_FIELDS] = epx_dispatch_direct,
            [EPX_VERB_COMBINE] = epx_combine_direct,
            [EPX_VERB_DISPATCH_BACKWARD] = epx_combine_direct,
            [EPX_VERB_COMBINE_BACKWARD] = epx_dispatch_direct,
            [EPX_VERB_ALLTOALLV] = epx_alltoallv_direct,
        },
};
