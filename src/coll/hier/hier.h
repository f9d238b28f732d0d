/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hier.h - the ground of the hierarchical algorithms: messages between nodes as the staged
 * algorithms send them, and an area of shared memory for each rank inside a node. hier.c has the
 * protocol.
 */
#ifndef EPX_COLL_HIER_HIER_H
#define EPX_COLL_HIER_HIER_H

#include "coll/staged/staged.h"
#include "kernels/node_rows.h"

struct epx_hier {
    struct epx_comm *comm;
    struct epx_arrays arrays; /* all those below */
    struct epx_staged *staged;
    struct epx_window *window; /* shared by the ranks of the node */
    uint64_t round;            /* rounds since the communicator was made; alike on all ranks */
    struct epx_node_block block;
    int *home_displs, *relay_displs; /* [R] bytes: in the home stage; in the area or relay stage */
    int64_t *part_at;                /* [R] combine: where a home's parts lie in the own area */
    char **parts;                    /* [R] the addresses for part_at */
    int32_t *node_rows;              /* memory of the block's arrays */
    int64_t *node_at;
    char **areas;
    const int64_t **tables;
};

/* The operations of struct epx_ground. */
int epx_hier_usable(const struct epx_comm *comm, char *why);
int epx_hier_create(struct epx_transport *transport);
void epx_hier_free(struct epx_transport *transport);
int epx_route_tokens_hier(struct epx_request *request, int *moved);
int epx_move_hier(struct epx_request *request, int *moved);

struct epx_hier *epx_hier_of(const struct epx_request *request);

/* The handshake, and what follows it. */
int epx_hier_begin(struct epx_request *request, int *moved);
/* Sets *moved once the rows of the next block or segment are found and may fill the area, and once
 * the request is complete: after the last. */
int epx_hier_next_block(struct epx_request *request, int *moved);

/* A round: fill the own area once nobody reads what it held, tell where the rows of each home lie,
 * and read the others' areas once all are full. request->waiting_for is the rank that lacks. */
int epx_hier_may_fill(const struct epx_hier *hier, struct epx_request *request);
void epx_hier_post_filled(struct epx_hier *hier, const int64_t *home_at);
int epx_hier_all_filled(struct epx_request *request, int *moved);
void epx_hier_post_taken(struct epx_hier *hier);
/* This rank's area. */
char *epx_hier_area(const struct epx_hier *hier);

/* Start the exchange of the block's rows: from the home stages to the relays' areas, or back from
 * the relays' stages to the home stages. */
int epx_hier_to_relays(struct epx_hier *hier);
int epx_hier_to_homes(struct epx_hier *hier);
/* Combine: finds where in the own area the block's parts for each home lie. */
void epx_hier_place_parts(struct epx_hier *hier);

/* The node plan of a route. */
int epx_node_plan_create(const struct epx_comm *comm, struct epx_plan *plan);

#endif
