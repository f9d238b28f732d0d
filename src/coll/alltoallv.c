/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoallv.c - what every alltoallv on host memory does with counts and displacements, and its
 * end; the counts that a persistent one keeps. */
#include "coll/alltoallv.h"

#include <stdlib.h>
#include <string.h>

#include "coll/attach.h"
#include "core/verdict.h"
#include "transport/module.h"

static void free_kept(struct epx_kept *kept)
{
    free(kept);
}

/* The counts on host memory lie behind the struct. */
static int keep_on_host(const struct epx_comm *comm, const struct epx_call *call,
                        struct epx_kept **result)
{
    const size_t ranks = (size_t)comm->size, bytes = ranks * sizeof(*call->sendcounts);
    struct epx_kept *kept = epx_memory_zeroed(1, sizeof(*kept) + 2 * bytes);

    EPX_FAIL_IF(!kept, EPX_ERR_NO_MEM, "no memory for counts of %d ranks", comm->size);
    kept->free = free_kept;
    kept->counts = (int64_t *)(kept + 1);
    memcpy(kept->counts, call->sendcounts, bytes);
    memcpy(kept->counts + ranks, call->sdispls, bytes);
    *result = kept;
    return EPX_SUCCESS;
}

int epx_alltoallv_keep_counts(struct epx_request *request)
{
    struct epx_comm *comm = request->comm;
    struct epx_call *call = &request->call;
    const struct epx_device_ops *ops = epx_transport_device_ops(comm);
    struct epx_kept *kept = NULL;
    int rc;

    epx_lock();
    rc = ops ? ops->keep_counts(comm->transport->device, call, &kept)
             : keep_on_host(comm, call, &kept);
    if (rc == EPX_SUCCESS)
        epx_request_keep(request, kept);
    epx_unlock();
    EPX_TRY(rc);
    call->sendcounts = kept->counts;
    call->sdispls = kept->counts + comm->size;
    return EPX_SUCCESS;
}

void epx_alltoallv_copy_counts(struct epx_request *request, int64_t *own)
{
    struct epx_call *call = &request->call;
    size_t ranks = (size_t)request->comm->size;

    for (size_t r = 0; r < ranks; r++) {
        int64_t rows = call->sendcounts[r];

        own[r] = rows > 0 ? rows : 0; /* negative only if changed since the check */
        own[ranks + r] = call->sdispls[r];
    }
    call->told_counts = call->recvcounts;
    call->told_displs = call->rdispls;
    call->sendcounts = own;
    call->sdispls = own + ranks;
    call->recvcounts = own + 2 * ranks;
    call->rdispls = own + 3 * ranks;
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
    memcpy(call->told_counts, call->recvcounts, (size_t)comm->size * sizeof(*call->recvcounts));
    memcpy(call->told_displs, call->rdispls, (size_t)comm->size * sizeof(*call->rdispls));
    request->received_rows = rows;
    return rows <= call->recv_capacity;
}

int epx_alltoallv_finish(struct epx_request *request)
{
    int64_t rows = request->received_rows, capacity = request->call.recv_capacity;

    request->complete = 1;
    return rows > capacity ? epx_fail_too_many(request->comm->rank, rows, capacity) : EPX_SUCCESS;
}
