/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs.h - how an operation begins. Dispatch and combine backward scatter a home rank's rows to
 * the experts; combine and dispatch backward gather the experts' rows and sum them at home: two
 * flows serve the four verbs. Each flow has a direct, a staged and a hierarchical algorithm.
 */
#ifndef EPX_COLL_VERBS_H
#define EPX_COLL_VERBS_H

#include "core/request.h"
#include "core/route.h"
#include "kernels/host/host_kernels.h"

/* Local: give the request the algorithm that fits its transport. Then submit it. */
void epx_route_tokens_prepare(struct epx_request *request);
void epx_dispatch_prepare(struct epx_request *request); /* and combine backward */
void epx_combine_prepare(struct epx_request *request);  /* and dispatch backward */
void epx_alltoallv_prepare(struct epx_request *request);

/* Collective, agreed: the plan, its windows and the view of a new route. Local: their end. */
int epx_routing_create(struct epx_route *route);

int epx_route_tokens_direct(struct epx_request *request, int *moved);
int epx_route_tokens_staged(struct epx_request *request, int *moved);
int epx_route_tokens_hier(struct epx_request *request, int *moved);
int epx_dispatch_direct(struct epx_request *request, int *moved);
int epx_dispatch_staged(struct epx_request *request, int *moved);
int epx_dispatch_hier(struct epx_request *request, int *moved);
int epx_combine_direct(struct epx_request *request, int *moved);
int epx_combine_staged(struct epx_request *request, int *moved);
int epx_combine_hier(struct epx_request *request, int *moved);
int epx_alltoallv_direct(struct epx_request *request, int *moved);
int epx_alltoallv_staged(struct epx_request *request, int *moved);

/* That of the three which the request's transport stands on. */
typedef int (*epx_algorithm)(struct epx_request *request, int *moved);
epx_algorithm epx_choose_algorithm(const struct epx_request *request, epx_algorithm direct,
                                   epx_algorithm staged, epx_algorithm hier);

/* Whether it is of the second flow. */
int epx_gathers(enum epx_verb verb);
/* The operation seen from both ends. */
struct epx_home_rows epx_home_rows_of(const struct epx_request *request, struct epx_segments cut,
                                      int weighted);
struct epx_expert_rows epx_expert_rows_of(const struct epx_request *request,
                                          struct epx_segments cut, int weighted, double *sums);
/* Work that needs no other rank: padding, gradients of pairs that do not travel, statistics. */
void epx_dispatch_begin(struct epx_request *request, int weighted);
void epx_combine_begin(struct epx_request *request, int weighted);

#endif
