/* SPDX-License-Identifier: BSD-3-Clause */
/* combine.c - combine and dispatch backward: the experts' rows go home and are summed there. */
#include "coll/verbs.h"
#include "kernels/node_rows.h"

/* Counts the rows sent to each home. Where rows are summed by node, rows for a home on another node
 * go to a relay of this node, which sends that home one row for each token. */
static void count_rows(struct epx_request *request)
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
void epx_combine_begin(struct epx_request *request, int weighted)
{
    const struct epx_call *call = &request->call;
    const struct epx_plan *plan = request->route->plan;

    count_rows(request);
    if (weighted && call->weights_out && call->num_tokens)
        memset(call->weights_out, 0,
               (size_t)call->num_tokens * (size_t)plan->shape.top_k * sizeof(*call->weights_out));
    request->received_rows = call->num_tokens;
}
