/* SPDX-License-Identifier: BSD-3-Clause */
/* device_graph.c - makes what kernels are given of a graph. */
#include "coll/device/graph/device_graph.h"

#include <stdlib.h>

#include "coll/device/device.h"
#include "core/agree.h"

/* Graphs are told from each other by so many numbers, which share a word with the verb. */
enum { MOST_NUMBERS = 1 << 16 };

static void list_edges(const struct epx_ends *ends, struct epx_edge_list *list)
{
    list->num = ends->num;
    for (int i = 0; i < ends->num; i++) {
        list->rank[i] = (uint8_t)ends->rank[i];
        list->place[i] = (uint8_t)ends->place[i];
        list->turn[i] = ends->before[i] < 0 ? 0 : (uint8_t)(list->turn[ends->before[i]] + 1);
    }
}

static int most_turns(const struct epx_edge_list *list)
{
    int most = 0;

    for (int i = 0; i < list->num; i++)
        most = list->turn[i] + 1 > most ? list->turn[i] + 1 : most;
    return most;
}

/* The lists of all ranks fit. */
static int check_degrees(const struct epx_graph *graph)
{
    const int in = graph->sources.num, out = graph->destinations.num;
    int64_t most;

    EPX_TRY(epx_comm_max(graph->comm, in > out ? in : out, &most));
    EPX_FAIL_IF(most > EPX_MOST_EDGES, EPX_ERR_UNSUPPORTED,
                "%lld edges begin or end at a rank; on device memory a graph has at most %d there",
                (long long)most, EPX_MOST_EDGES);
    return EPX_SUCCESS;
}

static int init(struct epx_graph *graph)
{
    struct epx_device_graph *made = graph->device_graph;
    int64_t turns, sources;

    list_edges(&graph->sources, &made->sources);
    list_edges(&graph->destinations, &made->destinations);
    EPX_TRY(epx_comm_max(graph->comm, most_turns(&made->sources), &turns));
    EPX_TRY(epx_comm_max(graph->comm, made->sources.num, &sources));
    made->most_turns = (int32_t)turns;
    made->most_sources = (int32_t)sources;
    return EPX_SUCCESS;
}

static void graph_free(struct epx_graph *graph)
{
    free(graph->device_graph);
}

int epx_device_graph_create(struct epx_graph *graph)
{
    struct epx_device *device = graph->comm->transport->device;
    int rc = EPX_SUCCESS;

    EPX_TRY(check_degrees(graph));
    graph->ground_free = graph_free;
    graph->device_graph = calloc(1, sizeof(*graph->device_graph));
    if (!graph->device_graph)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for a graph");
    EPX_TRY(epx_comm_agree(graph->comm, rc));
    device->num_graphs = device->num_graphs % MOST_NUMBERS + 1;
    graph->device_graph->number = device->num_graphs;
    return init(graph);
}
