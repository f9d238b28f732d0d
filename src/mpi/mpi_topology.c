/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_topology.c - the neighbours that a topology of MPI gives a rank, in the order of MPI's
 * neighbour collectives. The duplicate of the user's communicator has the topology, too.
 */
#include <stdlib.h>

#include "mpi/mpi_parts.h"

struct lists {
    int indegree, *sources, outdegree, *destinations;
};

/* In the order of MPI: for each dimension the neighbour of lower, then that of higher coordinate.
 * Where there is none MPI has MPI_PROC_NULL, which is left out. */
static int cart_neighbors(MPI_Comm comm, int *list, int *num)
{
    int dimensions, lower, higher;

    *num = 0;
    EPX_TRY_MPI(MPI_Cartdim_get(comm, &dimensions));
    for (int d = 0; d < dimensions; d++) {
        EPX_TRY_MPI(MPI_Cart_shift(comm, d, 1, &lower, &higher));
        if (lower != MPI_PROC_NULL)
            list[(*num)++] = lower;
        if (higher != MPI_PROC_NULL)
            list[(*num)++] = higher;
    }
    return EPX_SUCCESS;
}

static int cart_degree(MPI_Comm comm, int *num)
{
    int dimensions, *list, rc;

    EPX_TRY_MPI(MPI_Cartdim_get(comm, &dimensions));
    list = calloc(2 * (size_t)dimensions + 1, sizeof(*list));
    EPX_FAIL_IF(!list, EPX_ERR_NO_MEM, "no memory for a topology");
    rc = cart_neighbors(comm, list, num);
    free(list);
    return rc;
}

int epx_mpi_degrees(const struct epx_comm *comm, int *indegree, int *outdegree)
{
    int kind, weighted;

    EPX_TRY_MPI(MPI_Topo_test(comm->user, &kind));
    if (kind == MPI_DIST_GRAPH) {
        EPX_TRY_MPI(MPI_Dist_graph_neighbors_count(comm->user, indegree, outdegree, &weighted));
        return EPX_SUCCESS;
    }
    if (kind == MPI_CART)
        EPX_TRY(cart_degree(comm->user, indegree));
    else if (kind == MPI_GRAPH)
        EPX_TRY_MPI(MPI_Graph_neighbors_count(comm->user, comm->rank, indegree));
    else
        return epx_fail(EPX_ERR_ARG,
                        "indegree is EPX_FROM_TOPOLOGY, but the MPI communicator has no topology");
    *outdegree = *indegree;
    return EPX_SUCCESS;
}

/* Not without weights: compilers warn of MPI_UNWEIGHTED, and there may be none. */
static int graph_neighbors(MPI_Comm comm, struct lists lists, int *weights)
{
    EPX_TRY_MPI(MPI_Dist_graph_neighbors(comm, lists.indegree, lists.sources, weights,
                                         lists.outdegree, lists.destinations,
                                         weights + lists.indegree));
    return EPX_SUCCESS;
}

static int dist_graph_neighbors(MPI_Comm comm, struct lists lists)
{
    size_t degrees = (size_t)lists.indegree + (size_t)lists.outdegree;
    int *weights = calloc(degrees + 1, sizeof(*weights)), rc;

    EPX_FAIL_IF(!weights, EPX_ERR_NO_MEM, "no memory for a topology");
    rc = graph_neighbors(comm, lists, weights);
    free(weights);
    return rc;
}

int epx_mpi_neighbors(const struct epx_comm *comm, int indegree, int *sources, int outdegree,
                      int *destinations)
{
    int kind, num;

    EPX_TRY_MPI(MPI_Topo_test(comm->user, &kind));
    if (kind == MPI_DIST_GRAPH)
        return dist_graph_neighbors(comm->user,
                                    (struct lists){indegree, sources, outdegree, destinations});
    if (kind == MPI_CART)
        EPX_TRY(cart_neighbors(comm->user, sources, &num));
    else
        EPX_TRY_MPI(MPI_Graph_neighbors(comm->user, comm->rank, indegree, sources));
    for (int i = 0; i < outdegree; i++)
        destinations[i] = sources[i];
    return EPX_SUCCESS;
}
