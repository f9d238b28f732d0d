/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * neighbors.h - graphs as a pure function of a shape and a seed, so that any rank can compute the
 * lists of any other rank.
 */
#ifndef NEIGHBORS_H
#define NEIGHBORS_H

#include "epx.h"

enum graph_shape {
    SHAPE_RANDOM,    /* any rank may send to any, itself too, up to three times; not symmetric */
    SHAPE_RING,      /* to both sides, from both sides; with two ranks twice the same */
    SHAPE_ALL,       /* every rank once, in order */
    SHAPE_SELF,      /* itself, twice */
    SHAPE_NONE,      /* nobody */
    SHAPE_FEW,       /* rank 0 sends to all, nobody else does */
    SHAPE_ODD_ALONE, /* even ranks send to even ranks; odd ones have no neighbours */
    SHAPE_MANY,      /* rank 0 and the last rank send to each other 40 times */
    NUM_SHAPES
};

struct neighbors {
    enum graph_shape shape;
    uint64_t seed;
    EPX_Graph graph;
};

/* A partner of a rank: for how many times it stood in the list before says k. */
struct partner {
    int rank, k;
};

/* Writes the list of a rank's sources, or of its destinations, unless list is NULL; returns its
 * length. neighbors NULL: every rank once. */
int neighbors_list(const struct neighbors *neighbors, int rank, int incoming, struct partner *list);
/* Collective: makes the graph. */
int neighbors_open(struct neighbors *neighbors, EPX_Comm comm);
void neighbors_close(struct neighbors *neighbors);

#endif
