/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_graph.c - graphs for Python: who exchanges rows with whom. */
#include "glue.h"

#include <stdlib.h>

/* The lists of ranks are read before the call returns. */
int epx_python_graph_create(int comm, int indegree, const int sources[], int outdegree,
                            const int destinations[], int *number)
{
    struct epx_python_graph *graph;
    struct epx_python_comm *owner;
    int rc;

    EPX_PYTHON_TRY(epx_python_comm(comm, &owner));
    graph = calloc(1, sizeof(*graph));
    *number = graph ? epx_python_table_add(&epx_python_graphs, graph) : -1;
    if (*number < 0) {
        free(graph);
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for a graph");
    }
    graph->owner = owner;
    graph->comm = comm;
    graph->indegree = indegree;
    graph->outdegree = outdegree;
    rc = epx_python_check(owner, EPX_Graph_create_adjacent(owner->comm, indegree, sources,
                                                           outdegree, destinations, &graph->graph));
    if (rc != EPX_SUCCESS) {
        epx_python_table_remove(&epx_python_graphs, *number);
        free(graph);
    }
    return rc;
}

int epx_python_graph_free(int number)
{
    struct epx_python_graph *graph;

    EPX_PYTHON_TRY(epx_python_graph(number, &graph));
    EPX_PYTHON_TRY(epx_python_check(graph->owner, EPX_Graph_free(&graph->graph)));
    epx_python_table_remove(&epx_python_graphs, number);
    free(graph);
    return EPX_SUCCESS;
}
