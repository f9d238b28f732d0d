/* SPDX-License-Identifier: BSD-3-Clause */
/* graph.c - the graph: its life, its place in the list of its communicator, and the list of all
 * ranks. */
#include "core/graph/graph.h"

#include <stdlib.h>

struct epx_graph *epx_graph_allocate(struct epx_comm *comm, int indegree, int outdegree)
{
    struct epx_graph *graph = calloc(1, sizeof(*graph));

    if (!graph)
        return NULL;
    graph->references = 1;
    graph->comm = comm;
    graph->sources.num = indegree;
    graph->destinations.num = outdegree;
    return graph;
}

static void allocate_ends(struct epx_arrays *all, struct epx_ends *ends)
{
    EPX_ARRAY(all, ends->rank, ends->num);
    EPX_ARRAY(all, ends->place, ends->num);
    EPX_ARRAY(all, ends->before, ends->num);
    EPX_ARRAY(all, ends->next, ends->num);
    EPX_ARRAY(all, ends->peer, ends->num);
}

int epx_graph_make_arrays(struct epx_graph *graph)
{
    struct epx_arrays *all = &graph->arrays;
    const int64_t most = (int64_t)graph->sources.num + graph->destinations.num;

    allocate_ends(all, &graph->sources);
    allocate_ends(all, &graph->destinations);
    EPX_ARRAY(all, graph->peers.rank, most);
    EPX_ARRAY(all, graph->peers.source, most);
    EPX_ARRAY(all, graph->peers.destination, most);
    EPX_FAIL_IF(all->failed, EPX_ERR_NO_MEM, "no memory for a graph of %lld edges",
                (long long)most);
    return EPX_SUCCESS;
}

void epx_graph_destroy(struct epx_graph *graph)
{
    if (!graph)
        return;
    if (graph->ground_free)
        graph->ground_free(graph);
    epx_arrays_free(&graph->arrays);
    free(graph->told);
    free(graph->told_by);
    free(graph);
}

int epx_graph_of_everyone(struct epx_comm *comm, struct epx_graph **result)
{
    struct epx_graph *graph = epx_graph_allocate(comm, comm->size, comm->size);
    int rc = graph ? epx_graph_make_arrays(graph)
                   : epx_fail(EPX_ERR_NO_MEM, "no memory for a list of %d ranks", comm->size);

    if (rc != EPX_SUCCESS) {
        epx_graph_destroy(graph);
        return rc;
    }
    graph->everyone = 1;
    graph->peers.num = comm->size;
    graph->peers.others = comm->size - 1;
    for (int r = 0; r < comm->size; r++) {
        struct epx_ends *both[] = {&graph->sources, &graph->destinations};

        for (int i = 0; i < 2; i++) {
            both[i]->rank[r] = both[i]->peer[r] = r;
            both[i]->place[r] = comm->rank;
            both[i]->before[r] = both[i]->next[r] = -1;
        }
        graph->peers.rank[r] = graph->peers.source[r] = graph->peers.destination[r] = r;
    }
    *result = graph;
    return EPX_SUCCESS;
}

void epx_graph_retain(struct epx_graph *graph)
{
    if (graph->everyone) /* it lives as long as the communicator, which requests hold */
        return;
    epx_lock();
    graph->references++;
    epx_unlock();
}

static void bury(struct epx_graph *graph)
{
    graph->next = graph->comm->buried_graphs;
    graph->comm->buried_graphs = graph;
}

void epx_graph_release(struct epx_graph *graph)
{
    struct epx_comm *comm;
    int stays;

    if (!graph || graph->everyone)
        return;
    comm = graph->comm;
    epx_lock();
    stays = --graph->references > 0;
    if (!stays && epx_comm_keeps_memory(comm)) {
        bury(graph); /* late messages may still arrive in it */
        stays = 1;
    }
    epx_unlock();
    if (stays)
        return;
    epx_graph_destroy(graph);
    epx_comm_release(comm);
}

/* A collective of MPI that was given up may still write into a graph that is not whole. */
void epx_graph_free_buried(struct epx_comm *comm)
{
    struct epx_graph **link = &comm->buried_graphs;

    while (*link) {
        struct epx_graph *graph = *link;

        if (!graph->whole && epx_comm_agrees_by_mpi(comm)) {
            link = &graph->next;
            continue;
        }
        *link = graph->next;
        epx_graph_destroy(graph);
        epx_comm_release(comm);
    }
}

void epx_graph_enlist(struct epx_graph *graph)
{
    epx_lock();
    graph->whole = 1;
    graph->next = graph->comm->graphs;
    graph->comm->graphs = graph;
    epx_handle_add(&graph->handle, EPX_HANDLE_GRAPH);
    epx_unlock();
}

void epx_graph_unlist(struct epx_graph *graph)
{
    struct epx_graph **link = &graph->comm->graphs;

    epx_lock();
    while (*link && *link != graph)
        link = &(*link)->next;
    if (*link)
        *link = graph->next;
    epx_handle_remove(&graph->handle);
    epx_unlock();
}
