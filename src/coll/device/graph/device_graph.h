/* SPDX-License-Identifier: BSD-3-Clause */
/* device_graph.h - a graph as the kernels of exchanges along its edges are given it, by value. */
#ifndef EPX_COLL_DEVICE_GRAPH_DEVICE_GRAPH_H
#define EPX_COLL_DEVICE_GRAPH_DEVICE_GRAPH_H

#include "kernels/args/alltoallv_args.h"

struct epx_graph;

struct epx_device_graph {
    uint32_t number; /* among the graphs of the communicator, from 1, the same on all ranks */
    struct epx_edge_list sources, destinations;
    int32_t most_sources, most_turns; /* of any rank */
};

/* The operation of struct epx_ground. */
int epx_device_graph_create(struct epx_graph *graph);

#endif
