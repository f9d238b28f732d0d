/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layer.h - a mixture-of-experts layer as the tests use it: a route and its routings, whose
 * views are compared with the reference.
 */
#ifndef LAYER_H
#define LAYER_H

#include "support/reference.h"
#include "support/scenario.h"

struct layer {
    struct scenario s;
    EPX_Comm comm;
    EPX_Route route;
    EPX_Stream stream; /* the stream of its calls; none at first */
    EPX_Route_view view;
    int64_t *recv_capacity; /* [ranks] as asked for */
};

/* One call of EPX_Route_tokens. */
struct routing {
    struct layer *layer;
    int *tokens;
    int64_t **ids;
    struct buffer id_buffer;
    struct buffer counts; /* what EPX_Route_set_counts is given; not in rank-major */
    struct ref *ref;
    EPX_Request request;
};

int layer_open(struct layer *layer, const struct scenario *scenario, EPX_Comm comm);
void layer_close(struct layer *layer);

/* routing_prepare makes the ids and what they lead to, routing_call calls, routing_start does both;
 * call and start return the code of the EPX call. */
void routing_prepare(struct routing *routing, struct layer *layer, uint64_t seed);
int routing_call(struct routing *routing);
/* Before any other call that routes these ids: has it tell its counts. */
void routing_keep_counts(const struct routing *routing);
/* Puts other ids into the same buffer: T stays, and unused tokens have ids of -1. */
void routing_refill(struct routing *routing, uint64_t seed);
int routing_start(struct routing *routing, struct layer *layer, uint64_t seed);
/* The code that its request must complete with here. */
int routing_code(const struct routing *routing);
/* Compares the view, and the counts that the routing was to tell. */
int routing_check(const struct routing *routing);
/* Compares the counts alone, which outlive the next routing. */
int routing_check_counts(const struct routing *routing);
/* Waits for the routing, checks code and status, and compares the view. */
int routing_finish(struct routing *routing);
void routing_free(struct routing *routing);

/* Compares an error code and a row count with a status. */
int status_check(const MPI_Status *status, int code, int64_t rows);

#endif
