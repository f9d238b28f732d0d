/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoallv.c - an exact exchange of rows; counts and displacements are made by the library. */
#include "alltoallv.h"

#include "transport.h"
#include "verbs.h"

void epx_alltoallv_prepare(struct epx_request *request)
{
    if (epx_device_prepare(request))
        return;
    request->progress =
        epx_transport_of(request)->direct ? epx_alltoallv_direct : epx_alltoallv_staged;
}

int epx_alltoallv_place(struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    struct epx_comm *comm = request->comm;
    int64_t rows = 0;

    for (int r = 0; r < comm->size; r++) {
        call->rdispls[r] = rows;
        if (__builtin_add_overflow(rows, call->recvcounts[r], &rows))
            rows = INT64_MAX;
        epx_stats_count_rows(&comm->stats, epx_comm_distance(comm, r), call->sendcounts[r],
                             call->row_bytes);
    }
    request->received_rows = rows;
    return rows <= call->recv_capacity;
}

int epx_alltoallv_finish(struct epx_request *request)
{
    int64_t rows = request->received_rows, capacity = request->call.recv_capacity;

    request->complete = 1;
    EPX_FAIL_IF(rows > capacity, EPX_ERR_TRUNCATE,
                "%lld rows for rank %d, its receive capacity is %lld", (long long)rows,
                request->comm->rank, (long long)capacity);
    return EPX_SUCCESS;
}
