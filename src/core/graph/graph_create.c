/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * graph_create.c - how ranks make a graph: each tells all others its two lists, so that each finds
 * where its edges stand in the lists of the other ranks, and which edges only one side names. This
 * takes time and memory for the lists of all ranks, once; the memory is given back.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/agree.h"
#include "core/graph/graph.h"
#include "core/progress.h"

/* What a rank tells: both degrees, then the sources, then the destinations. */
enum { INDEGREE, OUTDEGREE, HEAD };

static const int *lists_of(const struct epx_graph *graph, int stride, int rank)
{
    return graph->told_by + (size_t)rank * (size_t)stride;
}

static const int *sources_told(const int *lists)
{
    return lists + HEAD;
}

static const int *destinations_told(const int *lists)
{
    return lists + HEAD + lists[INDEGREE];
}

static int check_list(const struct epx_comm *comm, const char *degree_name, int degree,
                      const char *name, const int *list)
{
    EPX_FAIL_IF(degree < 0, EPX_ERR_ARG, "%s is %d", degree_name, degree);
    EPX_FAIL_IF(degree && !list, EPX_ERR_ARG, "%s is NULL but %s is %d", name, degree_name, degree);
    for (int i = 0; i < degree; i++)
        EPX_FAIL_IF(list[i] < 0 || list[i] >= comm->size, EPX_ERR_ARG,
                    "%s[%d] is %d, which is no rank of 0..%d", name, i, list[i], comm->size - 1);
    return EPX_SUCCESS;
}

static int check(const struct epx_comm *comm, const struct epx_adjacency *a)
{
    EPX_TRY(check_list(comm, "indegree", a->indegree, "sources", a->sources));
    EPX_TRY(check_list(comm, "outdegree", a->outdegree, "destinations", a->destinations));
    EPX_FAIL_IF((int64_t)a->indegree + a->outdegree > INT_MAX / 64, EPX_ERR_ARG,
                "a graph of %lld edges on one rank",
                (long long)((int64_t)a->indegree + a->outdegree));
    return EPX_SUCCESS;
}

static int make(struct epx_comm *comm, const struct epx_adjacency *a, struct epx_graph **result)
{
    struct epx_graph *graph = epx_graph_allocate(comm, a->indegree, a->outdegree);

    EPX_FAIL_IF(!graph, EPX_ERR_NO_MEM, "no memory for a graph");
    epx_comm_retain(comm);
    *result = graph;
    EPX_TRY(epx_graph_make_arrays(graph));
    for (int i = 0; i < a->indegree; i++)
        graph->sources.rank[i] = a->sources[i];
    for (int i = 0; i < a->outdegree; i++)
        graph->destinations.rank[i] = a->destinations[i];
    return EPX_SUCCESS;
}

/* Fills before and next of a list. last: [R], all -1, and so again at the end. */
static void chain(struct epx_ends *ends, int *last)
{
    for (int i = 0; i < ends->num; i++) {
        ends->before[i] = last[ends->rank[i]];
        ends->next[i] = -1;
        if (ends->before[i] >= 0)
            ends->next[ends->before[i]] = i;
        last[ends->rank[i]] = i;
    }
    for (int i = 0; i < ends->num; i++)
        last[ends->rank[i]] = -1;
}

/* Adds the ranks of a list to the peers. peer_of: [R], -1 = not among them. */
static void add_peers(struct epx_graph *graph, struct epx_ends *ends, int *firsts, int *peer_of)
{
    struct epx_peers *peers = &graph->peers;

    for (int i = 0; i < ends->num; i++) {
        int rank = ends->rank[i];

        if (peer_of[rank] < 0) {
            peer_of[rank] = peers->num;
            peers->rank[peers->num] = rank;
            peers->source[peers->num] = peers->destination[peers->num] = -1;
            peers->num++;
            peers->others += rank != graph->comm->rank;
        }
        ends->peer[i] = peer_of[rank];
        if (ends->before[i] < 0)
            firsts[ends->peer[i]] = i;
    }
}

static void find_peers(struct epx_graph *graph, int *by_rank)
{
    for (int r = 0; r < graph->comm->size; r++)
        by_rank[r] = -1;
    chain(&graph->sources, by_rank);
    chain(&graph->destinations, by_rank);
    add_peers(graph, &graph->sources, graph->peers.source, by_rank);
    add_peers(graph, &graph->destinations, graph->peers.destination, by_rank);
}

/* The lists of this rank, and room for those of all. */
static int prepare_lists(struct epx_graph *graph, int stride)
{
    const struct epx_ends *in = &graph->sources, *out = &graph->destinations;
    size_t ranks = (size_t)graph->comm->size;

    graph->told = epx_memory_zeroed((size_t)stride, sizeof(int));
    graph->told_by = epx_memory_zeroed(ranks, (size_t)stride * sizeof(int));
    EPX_FAIL_IF(!graph->told || !graph->told_by, EPX_ERR_NO_MEM,
                "no memory for the lists of %zu ranks", ranks);
    graph->told[INDEGREE] = in->num;
    graph->told[OUTDEGREE] = out->num;
    memcpy(graph->told + HEAD, in->rank, (size_t)in->num * sizeof(int));
    memcpy(graph->told + HEAD + in->num, out->rank, (size_t)out->num * sizeof(int));
    return EPX_SUCCESS;
}

/* Finds where each end of this rank stands in the list of the other rank, which is told[num];
 * returns how often this rank stands there. */
static int find_places(struct epx_ends *ends, int first, const int *told, int num, int self)
{
    int times = 0;

    for (int place = 0, i = first; place < num; place++) {
        if (told[place] != self)
            continue;
        times++;
        if (i >= 0) {
            ends->place[i] = place;
            i = ends->next[i];
        }
    }
    return times;
}

static int length(const struct epx_ends *ends, int first)
{
    int num = 0;

    for (int i = first; i >= 0; i = ends->next[i])
        num++;
    return num;
}

/* Whether two ranks name as many edges from one to the other. */
static int compare(int source, int target, int in_destinations, int in_sources)
{
    EPX_FAIL_IF(in_destinations != in_sources, EPX_ERR_ARG,
                "rank %d has rank %d in destinations %d times, but rank %d has rank %d in sources "
                "%d times",
                source, target, in_destinations, target, source, in_sources);
    return EPX_SUCCESS;
}

/* Compares this rank's lists with those of a rank. peer: that rank among the peers, -1 = none. */
static int match(struct epx_graph *graph, const int *lists, int rank, int peer)
{
    struct epx_ends *in = &graph->sources, *out = &graph->destinations;
    int first_in = peer < 0 ? -1 : graph->peers.source[peer];
    int first_out = peer < 0 ? -1 : graph->peers.destination[peer];
    int self = graph->comm->rank, there;

    there = find_places(out, first_out, sources_told(lists), lists[INDEGREE], self);
    EPX_TRY(compare(self, rank, length(out, first_out), there));
    there = find_places(in, first_in, destinations_told(lists), lists[OUTDEGREE], self);
    return compare(rank, self, there, length(in, first_in));
}

/* peer_of: [R] the peer that each rank is, or -1. */
static int match_all(struct epx_graph *graph, int stride, const int *peer_of)
{
    for (int r = 0; r < graph->comm->size; r++)
        EPX_TRY(match(graph, lists_of(graph, stride, r), r, peer_of[r]));
    return EPX_SUCCESS;
}

/* Collective, agreed. by_rank: [R]. */
static int exchange_lists(struct epx_graph *graph, int *by_rank)
{
    struct epx_comm *comm = graph->comm;
    int64_t most;
    int stride;

    EPX_TRY(epx_comm_max(comm, (int64_t)graph->sources.num + graph->destinations.num, &most));
    stride = HEAD + (int)most;
    EPX_TRY(epx_comm_agree(comm, prepare_lists(graph, stride)));
    EPX_TRY(epx_comm_allgather_bytes(comm, graph->told, stride * (int)sizeof(int), graph->told_by));
    find_peers(graph, by_rank);
    return epx_comm_agree(comm, match_all(graph, stride, by_rank));
}

/* Gives back what MPI may not touch any more. */
static void free_lists(struct epx_graph *graph)
{
    free(graph->told);
    free(graph->told_by);
    graph->told = graph->told_by = NULL;
}

int epx_graph_create(struct epx_comm *comm, const struct epx_adjacency *adjacency, int own_rc,
                     struct epx_graph **result)
{
    struct epx_graph *graph = NULL;
    int rc = own_rc, *by_rank = epx_memory_zeroed((size_t)comm->size, sizeof(*by_rank));

    epx_comm_drain(comm);
    if (rc == EPX_SUCCESS && !by_rank)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for %d ranks", comm->size);
    if (rc == EPX_SUCCESS)
        rc = check(comm, adjacency);
    if (rc == EPX_SUCCESS)
        rc = make(comm, adjacency, &graph);
    rc = epx_comm_agree(comm, rc);
    if (rc == EPX_SUCCESS)
        rc = exchange_lists(graph, by_rank);
    free(by_rank);
    if (rc != EPX_SUCCESS) {
        epx_graph_release(graph);
        return rc;
    }
    free_lists(graph);
    *result = graph;
    return EPX_SUCCESS;
}
