/* SPDX-License-Identifier: BSD-3-Clause */
/* ground_direct.c - host memory, where ranks store into each other's windows. */
#include "coll/direct/edges.h"
#include "coll/verbs.h"
#include "core/agree.h"

static int create(struct epx_transport *transport)
{
    struct epx_comm *comm = transport->comm;

    EPX_TRY(epx_direct_create(transport, epx_edges_bytes(comm->size, comm->size)));
    return epx_comm_agree(comm, epx_edges_of_everyone(transport->direct));
}

static void free_ground(struct epx_transport *transport)
{
    if (!transport->direct)
        return;
    epx_boards_free(transport);
    epx_edges_free(transport->direct->everyone);
    epx_direct_free(transport);
}

const struct epx_ground epx_ground_direct = {
    .name = "direct",
    .create = create,
    .free = free_ground,
    .route_create = epx_routing_create,
    .lacks = epx_direct_lacks,
    .graph_create = epx_graph_create_direct,
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
            [EPX_VERB_NEIGHBOR_ALLTOALLV] = epx_alltoallv_direct,
        },
};
