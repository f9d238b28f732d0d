/* SPDX-License-Identifier: BSD-3-Clause */
/* route.h - the route: checked attributes, what was routed last, and the view of it. */
#ifndef EPX_CORE_ROUTE_H
#define EPX_CORE_ROUTE_H

#include "core/comm.h"

struct epx_plan;
struct epx_device_plan;

struct epx_route {
    struct epx_handle handle; /* until the user frees it; requests may hold it longer */
    int references;
    struct epx_comm *comm;
    struct epx_route *next; /* in the communicator's list */
    EPX_Route_attr attr;
    int id;                          /* the same on all ranks */
    struct epx_transport *transport; /* the communicator's, or its spare one */
    int64_t capacity;                /* most rows of this rank's receive buffer */
    int64_t next_capacity;           /* rows from the next routing on */
    int64_t routed_capacity;         /* rows in force: of the last routing */
    int32_t *counts;                 /* the user's, told from the next routing on; or NULL */
    EPX_Route_view view;
    struct epx_plan *plan;                      /* where everything goes */
    struct epx_device_plan *device_plan;        /* instead of plan, on device memory */
    struct epx_window *window;                  /* of the plan: what ranks exchange */
    void (*plan_free)(struct epx_route *route); /* frees plan and window */
    atomic_int routed; /* EPX_Route_tokens was called, here or as a progress thread learned */
    int num_tokens;    /* of the last routing */
    int error;         /* of the last routing: operations on the route fail with it */
    char message[EPX_MAX_ERROR_STRING];
};

/* Copies and checks attributes of any known size. Local. */
int epx_route_read_attr(const EPX_Route_attr *attr, EPX_Route_attr *copy);

/* Local: a route that belongs to no communicator yet; NULL if there is no memory. */
struct epx_route *epx_route_allocate(void);
/* Collective: compares the attributes across ranks. */
int epx_route_create(struct epx_comm *comm, const EPX_Route_attr *attr, struct epx_route **route);
void epx_route_retain(struct epx_route *route);
void epx_route_release(struct epx_route *route);
/* Put a route on, and take it off, its communicator's list of routes that the user has not
 * freed. */
void epx_route_enlist(struct epx_route *route);
void epx_route_unlist(struct epx_route *route);
int epx_route_copy_view(const struct epx_route *route, EPX_Route_view *view);
/* Weights that a receiver holds for each row of its buffer: 1, or top_k in rank-major. */
int64_t epx_route_weights_per_row(const struct epx_route *route);

#endif
