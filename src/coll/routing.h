/* SPDX-License-Identifier: BSD-3-Clause */
/* routing.h - the plan of a route, and the steps that every EPX_Route_tokens takes. */
#ifndef EPX_COLL_ROUTING_H
#define EPX_COLL_ROUTING_H

#include "core/request.h"
#include "core/route.h"
#include "kernels/host/host_kernels.h"
#include "transport/transport.h"

/* Steps of a routing, local: count this rank's pairs; once all counts are here, give slots and
 * write records; once all records are here, index the rows and say how it went. */
void epx_routing_count(struct epx_request *request);
int epx_routing_assign(struct epx_request *request);
int epx_routing_finish(struct epx_request *request);
/* Routing by messages: begin makes the handshake and starts the allgather of the counts; assign
 * writes the records where they are sent from; most_records is the longest list between two
 * ranks. */
int epx_routing_begin_staged(struct epx_request *request, int *moved);
int epx_routing_assign_staged(struct epx_request *request);
int64_t epx_routing_most_records(const struct epx_plan *plan);
/* Keeps the error of a failed routing for the operations that use it. */
int epx_routing_keep(struct epx_request *request, int error);

#endif
