/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * edge_operation.h - an operation on the edges of a graph: what its sender's half (edges_out.c) and
 * its receiver's half (edges_in.c) have in common. alltoallv_direct.c explains the protocol, and
 * takes the operation from its begin to its end.
 */
#ifndef EPX_COLL_DIRECT_EDGE_OPERATION_H
#define EPX_COLL_DIRECT_EDGE_OPERATION_H

#include "base/flags.h"
#include "coll/direct/edges.h"

/* An operation on the edges of its graph. */
struct epx_edge_operation {
    struct epx_direct *direct;
    struct epx_request *request;
    struct epx_edges *edges;
    struct epx_edge_in *in;
    struct epx_edge_out *out;
    const struct epx_ends *sources, *destinations;
    struct epx_fixed *fixed;
    uint64_t epoch; /* n */
    int everyone;   /* the edges are those between all ranks */
    int bank;       /* of words that have two */
};

static inline int64_t epx_edge_bytes(const struct epx_edge_operation *x, int64_t rows)
{
    return rows * x->request->call.row_bytes;
}

/* Whether a word of this operation is there. */
static inline int epx_edge_has_come(const struct epx_edge_operation *x, _Atomic uint64_t *number)
{
    return epx_flag_look(number) == x->epoch;
}

static inline void epx_edge_post(const struct epx_edge_operation *x, _Atomic uint64_t *number,
                                 int rank)
{
    epx_flag_post(number, x->epoch);
    epx_direct_count(x->direct, rank);
}

/* Where a word carries rows. */
static inline char *epx_edge_payload(struct epx_rows_line *line, int64_t bytes)
{
    return bytes <= EPX_EDGE_FEW ? line->few : line->payload;
}

/* The bytes that fit into a slot of a ring, of those that are left. */
static inline int64_t epx_edge_piece(const struct epx_edge_operation *x, int64_t left)
{
    return left < x->direct->slot_bytes ? left : x->direct->slot_bytes;
}

/* Begins the edges to all destinations, and posts the first word of each, unless that comes behind
 * the rows. Called before epx_edges_in_begin. */
void epx_edges_out_begin(const struct epx_edge_operation *x);
/* Moves the edges to destinations on; sets *moved if one got on. */
void epx_edges_out_go_on(const struct epx_edge_operation *x, int *moved);

/* Begins the edges from all sources. */
void epx_edges_in_begin(const struct epx_edge_operation *x);
/* Reads the rows of all sources; returns the first rank whose word has not come, or -1. */
int epx_edges_in_lack(const struct epx_edge_operation *x);
/* The sources that were not known before: whether they agree, and whether all are fixed. */
void epx_edges_in_agree(const struct epx_edge_operation *x, int *fixed);
/* Moves the edges from sources on; sets *moved if one got on. */
void epx_edges_in_go_on(const struct epx_edge_operation *x, int *moved);

#endif
