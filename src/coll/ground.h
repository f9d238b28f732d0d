/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ground.h - the grounds: the layer between a transport and the algorithms of all verbs. On host
 * memory there are direct, staged and hier; on device memory, in the module, direct and staged.
 */
#ifndef EPX_COLL_GROUND_H
#define EPX_COLL_GROUND_H

#include "core/request.h"
#include "core/route.h"
#include "transport/transport.h"

struct epx_ground {
    const char *name;
    /* Whether the ranks can use it as far as this rank sees; if not, why. Called on all ranks or on
     * none. NULL = wherever its transport can be used. */
    int (*usable)(const struct epx_comm *comm, char *why);
    /* Collective, agreed: what the communicator needs beyond its transport. */
    int (*create)(struct epx_transport *transport);
    /* Local; takes what create left half-built. */
    void (*free)(struct epx_transport *transport);
    /* Collective, agreed: the plan, its windows and the view of a new route. */
    int (*route_create)(struct epx_route *route);
    /* Local, on host memory: what the plan of a route has on this ground alone; NULL = nothing. */
    int (*plan_create)(const struct epx_comm *comm, struct epx_plan *plan);
    /* Collective, agreed: what the ground has of a new graph. */
    int (*graph_create)(struct epx_graph *graph);
    /* On host memory: one step of an operation of each verb. */
    int (*step[EPX_NUM_VERBS])(struct epx_request *request, int *moved);
    /* On host memory: struct epx_request has it. */
    int (*lacks)(const struct epx_request *request, int rank);
    /* On device memory: queues the kernels of an operation of each verb on its stream. */
    int (*queue[EPX_NUM_VERBS])(const struct epx_request *request);
    /* On device memory: the kernels that queue has left for later. */
    int (*queue_rest[EPX_NUM_VERBS])(const struct epx_request *request);
};

extern const struct epx_ground epx_ground_direct;
extern const struct epx_ground epx_ground_staged;
extern const struct epx_ground epx_ground_hier;

/* The transport that an operation uses. */
struct epx_transport *epx_transport_of(const struct epx_request *request);

/* Local: gives a request the functions of its verb on its ground. Then submit it. */
void epx_ground_prepare(struct epx_request *request);

#endif
