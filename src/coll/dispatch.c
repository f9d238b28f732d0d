/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch.c - dispatch and combine backward: rows of the home ranks go to the experts. */
#include "transport.h"
#include "verbs.h"

void epx_dispatch_prepare(struct epx_request *request)
{
    if (epx_device_prepare(request))
        return;
    request->progress =
        epx_transport_of(request)->direct ? epx_dispatch_direct : epx_dispatch_staged;
}

int epx_dispatch_begin(struct epx_request *request, int weighted)
{
    const struct epx_call *call = &request->call;
    const struct epx_plan *plan = request->route->plan;
    struct epx_comm *comm = request->comm;
    int writes_weights = weighted || call->verb == EPX_VERB_COMBINE_BACKWARD;

    for (int r = 0; r < comm->size; r++)
        epx_stats_count_rows(&comm->stats, epx_comm_distance(comm, r), plan->send_rows[r],
                             call->row_bytes);
    request->received_rows = *plan->num_rows;
    return comm->kernels->zero_padding(plan, call->rows_out, call->row_bytes,
                                       writes_weights ? call->weights_out : NULL,
                                       EPX_STREAM_NULL);
}
