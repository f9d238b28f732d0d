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

/* What a request keeps on host memory, in one allocation. */
struct kept_on_host {
    struct epx_kept kept;
    struct epx_fixed fixed;
    int64_t numbers[];
};

static int keep_on_host(const struct epx_call *call, struct epx_kept **result)
{
    const size_t in = (size_t)call->graph->sources.num, out = (size_t)call->graph->destinations.num;
    const size_t bytes = out * sizeof(*call->sendcounts);
    struct kept_on_host *kept = epx_memory_zeroed(
        1, sizeof(*kept) + 2 * bytes + in * sizeof(*call->sendcounts) +
               out * sizeof(*kept->fixed.grants) + (size_t)call->graph->peers.num);

    EPX_FAIL_IF(!kept, EPX_ERR_NO_MEM, "no memory for counts of %zu edges", in + out);
    kept->kept.free = free_kept;
    kept->kept.counts = kept->numbers;
    kept->kept.fixed = &kept->fixed;
    kept->fixed.rows = kept->numbers + 2 * out;
    kept->fixed.grants = (struct epx_grant *)(void *)(kept->fixed.rows + in);
    kept->fixed.linked = (char *)(kept->fixed.grants + out);
    for (size_t i = 0; i < out; i++) {
        kept->numbers[i] = call->sendcounts[i];
        kept->numbers[out + i] = call->sdispls[i];
    }
    *result = &kept->kept;
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
    rc = ops ? ops->keep_counts(comm->transport->device, call, &kept) : keep_on_host(call, &kept);
    if (rc == EPX_SUCCESS)
        epx_request_keep(request, kept);
    epx_unlock();
    EPX_TRY(rc);
    call->kept = kept;
    call->sendcounts = kept->counts;
    call->sdispls = kept->counts + call->graph->destinations.num;
    return EPX_SUCCESS;
}

void epx_alltoallv_copy_counts(struct epx_request *request, int64_t *own)
{
    struct epx_call *call = &request->call;
    const int in = call->graph->sources.num, out = call->graph->destinations.num;

    for (int i = 0; i < out; i++) {
        int64_t rows = call->sendcounts[i];

        own[i] = rows > 0 ? rows : 0; /* negative only if changed since the check */
        own[out + i] = call->sdispls[i];
    }
    call->told_counts = call->recvcounts;
    call->told_displs = call->rdispls;
    call->sendcounts = own;
    call->sdispls = own + out;
    call->recvcounts = own + 2 * out;
    call->rdispls = own + 2 * out + in;
}

int epx_alltoallv_place(struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const struct epx_ends *in = &call->graph->sources, *out = &call->graph->destinations;
    struct epx_comm *comm = request->comm;
    int64_t rows = 0;

    for (int i = 0; i < in->num; i++) {
        call->rdispls[i] = rows;
        if (__builtin_add_overflow(rows, call->recvcounts[i], &rows))
            rows = INT64_MAX;
        call->told_counts[i] = call->recvcounts[i];
        call->told_displs[i] = call->rdispls[i];
    }
    for (int i = 0; i < out->num; i++)
        epx_stats_count_rows(&comm->stats, epx_comm_distance(comm, out->rank[i]),
                             call->sendcounts[i], call->row_bytes);
    request->received_rows = rows;
    return rows <= call->recv_capacity;
}

void epx_alltoallv_learn(struct epx_request *request)
{
    struct epx_fixed *fixed = epx_alltoallv_fixed(request);

    for (int i = 0; i < request->call.graph->sources.num; i++)
        fixed->rows[i] = request->call.recvcounts[i];
    fixed->known = request->epoch;
}

int epx_alltoallv_finish(struct epx_request *request)
{
    int64_t rows = request->received_rows, capacity = request->call.recv_capacity;

    request->complete = 1;
    return rows > capacity ? epx_fail_too_many(request->comm->rank, rows, capacity) : EPX_SUCCESS;
}

int epx_alltoallv_progress(struct epx_request *request,
                           int (*step)(struct epx_request *request, int *moved), int *moved)
{
    int got_on, rc;

    do {
        got_on = 0;
        rc = step(request, &got_on);
        *moved |= got_on;
    } while (got_on && rc == EPX_SUCCESS && !request->complete);
    return rc;
}
