/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * graph.h - who may send to whom in an exchange without a route: the list of a graph that users
 * make, or that of a communicator, in which every rank stands once, in order. An edge goes from a
 * position in the sender's destinations to one in the receiver's sources; the k-th time that a rank
 * stands in one list belongs to the k-th time that the other rank stands in its list.
 */
#ifndef EPX_CORE_GRAPH_GRAPH_H
#define EPX_CORE_GRAPH_GRAPH_H

#include "core/comm.h"

struct epx_device_graph;
struct epx_edges;
struct epx_peer_rows;

/* The ends of edges on one side of this rank. */
struct epx_ends {
    int num;
    int *rank;          /* [num] */
    int *place;         /* [num] the position of the edge in the other rank's list */
    int *before, *next; /* [num] the nearest positions with the same rank; -1 = none */
    int *peer;          /* [num] the rank's position among the peers */
};

/* The ranks that stand in one of the lists, each once. */
struct epx_peers {
    int num;
    int others;                /* without this rank itself */
    int *rank;                 /* [num] */
    int *source, *destination; /* [num] the first positions with that rank; -1 = none */
};

struct epx_graph {
    struct epx_handle handle; /* until the user frees it; requests may hold it longer */
    int references;
    struct epx_comm *comm;
    struct epx_graph *next;   /* in the communicator's list */
    int everyone;             /* it is the list of the communicator */
    int whole;                /* all ranks have made it: no collective is under way in its memory */
    uint64_t epoch;           /* operations on it so far, the same on all ranks */
    struct epx_arrays arrays; /* those here and in the three structs below */
    struct epx_ends sources, destinations;
    struct epx_peers peers;
    int *told, *told_by; /* what ranks tell each other of their lists, until the graph is made */
    /* what the ground has of it, and frees */
    struct epx_edges *edges;
    struct epx_peer_rows *peer_rows;
    struct epx_device_graph *device_graph;
    void (*ground_free)(struct epx_graph *graph);
};

/* What a rank asks for. */
struct epx_adjacency {
    int indegree;
    const int *sources;
    int outdegree;
    const int *destinations;
};

/* Local: a graph of these degrees without arrays, NULL if there is no memory; its arrays. */
struct epx_graph *epx_graph_allocate(struct epx_comm *comm, int indegree, int outdegree);
int epx_graph_make_arrays(struct epx_graph *graph);
/* Local: takes NULL, and a graph that is half-made; leaves it to the caller to release the
 * communicator. */
void epx_graph_destroy(struct epx_graph *graph);
/* Local: the list of a communicator whose rank and size are known. */
int epx_graph_of_everyone(struct epx_comm *comm, struct epx_graph **graph);
/* Collective, agreed: EPX_ERR_ARG on all ranks for an edge that only one side names. own_rc is this
 * rank's result so far. Completes what is in flight. The ground's part comes next. */
int epx_graph_create(struct epx_comm *comm, const struct epx_adjacency *adjacency, int own_rc,
                     struct epx_graph **graph);
void epx_graph_retain(struct epx_graph *graph);
void epx_graph_release(struct epx_graph *graph);
/* Frees the graphs that were freed while others could still store into them. */
void epx_graph_free_buried(struct epx_comm *comm);
/* Put a graph on, and take it off, its communicator's list of graphs that the user has not
 * freed. */
void epx_graph_enlist(struct epx_graph *graph);
void epx_graph_unlist(struct epx_graph *graph);

#endif
