/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_exchange.c - exchanges without a route for Python, of all ranks or of neighbours in a graph:
 * checks the extents of all arrays, and calls EPX. They end as the operations of routes do. And the
 * graphs: who exchanges rows with whom. */
#include "glue.h"

#include <limits.h>
#include <stdlib.h>

const size_t epx_python_exchange_bytes = sizeof(struct epx_python_exchange);

static int check_words(const char *name, const struct epx_python_matrix *words, int64_t num)
{
    if (words->type != EPX_PYTHON_INT64)
        return epx_python_fail(EPX_ERR_TYPE, "alltoallv: %s is of type %s, want int64", name,
                               epx_python_type_name(words->type));
    if (words->rows != num || words->columns != 1)
        return epx_python_fail(EPX_ERR_COUNT, "alltoallv: %s is [%lld, %lld], want [%lld]", name,
                               (long long)words->rows, (long long)words->columns, (long long)num);
    return EPX_SUCCESS;
}

/* On device memory nobody can look at counts: EPX compares what they name with the allocation. */
static int check_sent(const struct epx_python_exchange *exchange, int64_t num)
{
    const int64_t *counts = exchange->counts.data, *displs = exchange->displs.data;
    const int64_t rows = exchange->input.rows;

    for (int64_t i = 0; i < num; i++)
        if (counts[i] < 0 || displs[i] < 0 ||
            (counts[i] > 0 && (displs[i] > rows || counts[i] > rows - displs[i])))
            return epx_python_fail(
                EPX_ERR_COUNT,
                "alltoallv: %lld rows from row %lld on for neighbour %lld, there are "
                "%lld rows",
                (long long)counts[i], (long long)displs[i], (long long)i, (long long)rows);
    return EPX_SUCCESS;
}

static int check_rows(const struct epx_python_exchange *exchange)
{
    const struct epx_python_matrix *input = &exchange->input, *output = &exchange->output;

    if (input->type < EPX_BYTE || input->type > EPX_FLOAT64)
        return epx_python_fail(EPX_ERR_TYPE, "alltoallv: rows are of type %s, which cannot be sent",
                               epx_python_type_name(input->type));
    if (input->columns < 0 || input->columns > INT_MAX)
        return epx_python_fail(EPX_ERR_COUNT, "alltoallv: rows of %lld elements, at most %d",
                               (long long)input->columns, INT_MAX);
    if (output->type != input->type || output->columns != input->columns ||
        output->rows != exchange->capacity || exchange->capacity < 0)
        return epx_python_fail(EPX_ERR_COUNT, "alltoallv: receives [%lld, %lld], want [%lld, %lld]",
                               (long long)output->rows, (long long)output->columns,
                               (long long)exchange->capacity, (long long)input->columns);
    return EPX_SUCCESS;
}

/* graph is NULL where all ranks exchange rows. */
static int check_extents(const struct epx_python_exchange *exchange,
                         const struct epx_python_comm *comm, const struct epx_python_graph *graph)
{
    const int64_t out = graph ? graph->outdegree : comm->size;
    const int64_t in = graph ? graph->indegree : comm->size;

    EPX_PYTHON_TRY(check_rows(exchange));
    EPX_PYTHON_TRY(check_words("counts", &exchange->counts, out));
    EPX_PYTHON_TRY(check_words("displs", &exchange->displs, out));
    EPX_PYTHON_TRY(check_words("received counts", &exchange->out_counts, in));
    EPX_PYTHON_TRY(check_words("received displs", &exchange->out_displs, in));
    return comm->on_device ? EPX_SUCCESS : check_sent(exchange, out);
}

static int start(const struct epx_python_exchange *e, const struct epx_python_comm *comm,
                 const struct epx_python_graph *graph, EPX_Request *request)
{
    const int count = (int)e->input.columns;
    const EPX_Datatype type = (EPX_Datatype)e->input.type;

    if (graph)
        return EPX_Neighbor_alltoallv(e->input.data, e->counts.data, e->displs.data, e->output.data,
                                      e->out_counts.data, e->out_displs.data, e->capacity, count,
                                      type, graph->graph, e->stream, request);
    return EPX_Alltoallv(e->input.data, e->counts.data, e->displs.data, e->output.data,
                         e->out_counts.data, e->out_displs.data, e->capacity, count, type,
                         comm->comm, e->stream, request);
}

/* May return EPX_PYTHON_UNFINISHED, as epx_python_run_in_slices does. */
int epx_python_exchange_in_slices(const struct epx_python_exchange *exchange)
{
    struct epx_python_work work = {.route = -1, .comm = (int)exchange->comm};
    struct epx_python_graph *graph = NULL;
    struct epx_python_comm *comm;

    EPX_PYTHON_TRY(epx_python_comm(exchange->comm, &comm));
    if (exchange->graph >= 0)
        EPX_PYTHON_TRY(epx_python_graph(exchange->graph, &graph));
    EPX_PYTHON_TRY(check_extents(exchange, comm, graph));
    if (comm->on_device)
        EPX_PYTHON_TRY(epx_python_device_enter(comm->context));
    EPX_PYTHON_TRY(epx_python_check(comm, start(exchange, comm, graph, &work.request)));
    return epx_python_end_or_keep(&work, exchange->stream);
}

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
