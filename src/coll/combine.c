/* SPDX-License-Identifier: BSD-3-Clause */
/* combine.c - combine and dispatch backward: the experts' rows go home and are summed there. */
#include "transport.h"
#include "verbs.h"

void epx_combine_prepare(struct epx_request *request)
{
    if (epx_device_prepare(request))
        return;
    request->progress =
        epx_transport_of(request)->direct ? epx_combine_direct : epx_combine_staged;
}

/* Pairs that did not travel have no gradient: all start at zero. */
int epx_combine_begin(struct epx_request *request, int weighted)
{
    const struct epx_call *call = &request->call;
    const struct epx_plan *plan = request->route->plan;
    struct epx_comm *comm = request->comm;

    for (int r = 0; r < comm->size; r++)
        epx_stats_count_rows(&comm->stats, epx_comm_distance(comm, r), plan->recv_rows[r],
                             call->row_bytes);
    if (weighted && call->weights_out && call->num_tokens)
        memset(call->weights_out, 0,
               (size_t)call->num_tokens * (size_t)plan->top_k * sizeof(*call->weights_out));
    request->received_rows = call->num_tokens;
    return EPX_SUCCESS;
}
