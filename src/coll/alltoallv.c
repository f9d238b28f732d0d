/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoallv.c - what every alltoallv on host memory does with counts and displacements, and its
 * end; the counts that a persistent one keeps. */
#include "coll/alltoallv.h"

#include <stdlib.h>
#include <string.h>

#include "coll/attach.h"
#include "core/verdict.h"
#include "transport/module.h"

/* Adds up the rows that a rank sends to itself, to its node and beyond. */
static void sum_sent(const struct epx_comm *comm, const struct epx_call *call, int64_t *sent)
{
    const struct epx_ends *out = &call->graph->destinations;

    for (int i = 0; i < out->num; i++) {
        int64_t *sum = &sent[epx_comm_distance(comm, out->rank[i])];

        *sum = (int64_t)((uint64_t)*sum + (uint64_t)call->sendcounts[i]);
    }
}

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

static int keep_on_host(const struct epx_comm *comm, const struct epx_call *call,
                        struct epx_kept **result)
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
    sum_sent(comm, call, kept->fixed.sent);
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
    rc = ops ? ops->keep_counts(comm->transport->device, call, &kept)
             : keep_on_host(comm, call, &kept);
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

    if (call->told_counts) /* of an operation that is started again, with counts that are kept */
        return;
    for (int i = 0; !call->kept && i < out; i++) {
        int64_t rows = call->sendcounts[i];

        own[i] = rows > 0 ? rows : 0; /* negative only if changed since the check */
        own[out + i] = call->sdispls[i];
    }
    if (!call->kept) {
        call->sendcounts = own;
        call->sdispls = own + out;
    }
    call->told_counts = call->recvcounts;
    call->told_displs = call->rdispls;
    call->recvcounts = own + 2 * out;
    call->rdispls = own + 2 * out + in;
}

static void count_sent(struct epx_request *request)
{
    const struct epx_fixed *fixed = epx_alltoallv_fixed(request);
    int64_t own[EPX_NUM_DISTANCES] = {0};
    const int64_t *sent = fixed ? fixed->sent : own;

    if (!fixed)
        sum_sent(request->comm, &request->call, own);
    for (int d = 0; d < EPX_NUM_DISTANCES; d++)
        if (sent[d])
            epx_stats_count_rows(&request->comm->stats, (enum epx_distance)d, sent[d],
                                 request->call.row_bytes);
}

int epx_alltoallv_place(struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const int num = call->graph->sources.num;
    int64_t rows = 0;

    for (int i = 0; i < num; i++) {
        call->rdispls[i] = rows;
        if (__builtin_add_overflow(rows, call->recvcounts[i], &rows))
            rows = INT64_MAX;
        call->told_counts[i] = call->recvcounts[i];
        call->told_displs[i] = call->rdispls[i];
    }
    count_sent(request);
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

int epx_alltoallv_progress(const struct epx_request *request,
                           int (*step)(const void *exchange, int *moved), const void *exchange,
                           int *moved)
{
    int got_on, rc;

    do {
        got_on = 0;
        rc = step(exchange, &got_on);
        *moved |= got_on;
    } while (got_on && rc == EPX_SUCCESS && !request->complete);
    return rc;
}
