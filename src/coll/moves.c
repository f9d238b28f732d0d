/* SPDX-License-Identifier: BSD-3-Clause */
/* moves.c - work of a dispatch, combine or backward that needs no other rank. */
#include "coll/verbs.h"
#include "kernels/node_rows.h"

/* Counts a row on the rank that sends it; a row that a relay of this node passed on is counted on
 * the rank that takes it from the relay. */
static void count_dispatched(struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;
    struct epx_comm *comm = request->comm;
    int64_t row_bytes = request->call.row_bytes;

    for (int r = 0; r < comm->size; r++)
        if (!plan->by_node || epx_comm_distance(comm, r) != EPX_DISTANCE_NETWORK)
            epx_stats_count_rows(&comm->stats, epx_comm_distance(comm, r), plan->send_rows[r],
                                 row_bytes);
        else if (epx_relay(&plan->by_node->nodes, r, comm->node[comm->rank]) != comm->rank)
            epx_stats_count_rows(&comm->stats, EPX_DISTANCE_NODE, plan->recv_rows[r], row_bytes);
    for (int m = 0; plan->by_node && m < comm->num_nodes; m++)
        if (m != comm->node[comm->rank])
            epx_stats_count_rows(&comm->stats, EPX_DISTANCE_NETWORK, plan->by_node->rows[m],
                                 row_bytes);
}

/* Zeroes what no row arrives in; the weights are zeroed once. */
static void zero_rest(const struct epx_request *request, const struct epx_field *field,
                      float *weights)
{
    const struct epx_plan *plan = request->route->plan;
    int is_dispatch = epx_verb_dispatches(request->call.verb);

    epx_zero_padding_host(plan, field->out, field->bytes, weights);
    if (request->route->attr.zero_unused)
        epx_zero_unused_host(plan, field->out, field->bytes, weights,
                             is_dispatch ? epx_route_weights_per_row(request->route) : 1);
}

static void begin_dispatch(struct epx_request *request, int weighted)
{
    const struct epx_call *call = &request->call;
    const struct epx_fields *fields = &call->fields;
    float *weights = weighted || !epx_verb_dispatches(call->verb) ? call->weights_out : NULL;

    if (request->half == EPX_HALF_WEIGHTS) /* no row of a user travels, and none is written */
        return;
    count_dispatched(request);
    request->received_rows = *request->route->plan->view.arrived_rows;
    for (int f = 0; f < fields->num; f++)
        zero_rest(request, &fields->at[f], f ? NULL : weights);
}

/* Counts the rows sent to each home. Where rows are summed by node, rows for a home on another node
 * go to a relay of this node, which sends that home one row for each token. */
static void count_combined(struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;
    const struct epx_node_plan *by_node = plan->by_node;
    struct epx_comm *comm = request->comm;

    for (int r = 0; r < comm->size; r++) {
        enum epx_distance distance = epx_comm_distance(comm, r);
        int64_t rows = plan->recv_rows[r];

        if (by_node && by_node->served[r] >= 0)
            rows = by_node->matrix[(int64_t)r * comm->num_nodes + by_node->nodes.own];
        else if (by_node && distance == EPX_DISTANCE_NETWORK)
            distance = EPX_DISTANCE_NODE;
        epx_stats_count_rows(&comm->stats, distance, rows, epx_wire_row_bytes(request));
    }
}

/* Starts all gradients of weights at zero, because pairs that did not travel have none. */
static void begin_combine(struct epx_request *request, int weighted)
{
    const struct epx_call *call = &request->call;
    const struct epx_plan *plan = request->route->plan;

    count_combined(request);
    if (weighted && call->weights_out && call->num_tokens)
        memset(call->weights_out, 0,
               (size_t)call->num_tokens * (size_t)plan->shape.top_k * sizeof(*call->weights_out));
    request->received_rows = call->num_tokens;
}

void epx_moves_begin(struct epx_request *request, int weighted)
{
    if (epx_verb_adds(request->call.verb))
        begin_combine(request, weighted);
    else
        begin_dispatch(request, weighted);
}
