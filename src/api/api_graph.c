/* SPDX-License-Identifier: BSD-3-Clause */
/* api_graph.c - EPX_Graph_create_adjacent, EPX_Graph_free. */
#include <stdlib.h>

#include "api/api.h"
#include "api/profile.h"
#include "coll/ground.h"

EPX_PROFILED(Graph_create_adjacent)
EPX_PROFILED(Graph_free)

/* The lists of the topology that MPI's communicator had. lists is freed by the caller. */
static int take_topology(const struct epx_comm *comm, struct epx_adjacency *adjacency, int **lists)
{
    const struct epx_mpi *mpi = comm->by_mpi ? epx_api_mpi() : NULL;
    int in, out;

    EPX_FAIL_IF(!mpi, EPX_ERR_ARG,
                "indegree is EPX_FROM_TOPOLOGY, but MPI did not make the communicator");
    EPX_TRY(mpi->degrees(comm, &in, &out));
    *lists = epx_memory_zeroed((size_t)in + (size_t)out, sizeof(**lists));
    EPX_FAIL_IF(!*lists, EPX_ERR_NO_MEM, "no memory for %d + %d neighbours", in, out);
    *adjacency = (struct epx_adjacency){in, *lists, out, *lists + in};
    return mpi->neighbors(comm, in, *lists, out, *lists + in);
}

static int graph_create(struct epx_comm *comm, struct epx_adjacency adjacency, EPX_Graph *graph)
{
    struct epx_graph *created;
    int *lists = NULL;
    int rc = graph ? EPX_SUCCESS : epx_fail(EPX_ERR_ARG, "graph is NULL");

    if (rc == EPX_SUCCESS && adjacency.indegree == EPX_FROM_TOPOLOGY)
        rc = take_topology(comm, &adjacency, &lists);
    rc = epx_graph_create(comm, &adjacency, rc, &created);
    free(lists);
    EPX_TRY(rc);
    rc = comm->transport->ground->graph_create(created);
    if (rc != EPX_SUCCESS) {
        epx_graph_release(created);
        return rc;
    }
    epx_graph_enlist(created);
    *graph = created;
    return EPX_SUCCESS;
}

/*
 * EPX_Graph_create_adjacent - tell who sends to whom in exchanges with neighbours.
 *
 * Collective, blocking; completes the operations in flight first.
 * Input: comm; sources, [indegree], ranks that this rank receives from; destinations, [outdegree],
 * ranks that it sends to; the same rank may stand several times, this rank too. Or indegree is
 * EPX_FROM_TOPOLOGY: the lists are those of the topology of the MPI communicator that comm was made
 * from, in MPI's order; the other three arguments are ignored. Output: graph.
 * Errors, on all ranks: EPX_ERR_ARG for a rank out of range, and for an edge that only one of its
 * ranks names, or one of them more often; EPX_ERR_UNSUPPORTED on device memory where more than 128
 * edges begin or end at a rank; EPX_ERR_NO_MEM; EPX_ERR_TIMEOUT. EPX_ERR_COMM.
 */
int EPX_Graph_create_adjacent(EPX_Comm comm, int indegree, const int sources[], int outdegree,
                              const int destinations[], EPX_Graph *graph)
{
    struct epx_adjacency adjacency = {indegree, sources, outdegree, destinations};

    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    return epx_api_return(comm, graph_create(comm, adjacency, graph));
}

/*
 * EPX_Graph_free - free a graph.
 *
 * Collective; does not wait. Operations in flight, and persistent requests, hold the graph until
 * they are complete or freed.
 * In/out: graph, set to EPX_GRAPH_NULL. Errors: EPX_ERR_ARG.
 */
int EPX_Graph_free(EPX_Graph *graph)
{
    EPX_API_ENTER();
    EPX_API_FAIL_IF(!graph, EPX_ERR_ARG, "graph is NULL");
    EPX_TRY(epx_api_graph(*graph));
    epx_lock();
    epx_graph_unlist(*graph);
    epx_graph_release(*graph);
    epx_unlock();
    *graph = EPX_GRAPH_NULL;
    return EPX_SUCCESS;
}
