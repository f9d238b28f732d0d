/* SPDX-License-Identifier: BSD-3-Clause */
/* api_alltoallv.c - EPX_Alltoallv: checks and hand-over. */
#include "api/api.h"
#include "api/profile.h"
#include "coll/attach.h"
#include "core/verdict.h"

EPX_PROFILED(Alltoallv)

static struct epx_buffer counts_buffer(const char *name, const int64_t *address, int ranks,
                                       int written)
{
    const int element = sizeof(int64_t);
    struct epx_buffer buffer = {name, address, ranks, element, element, written, 1};

    return buffer;
}

/* Counts in device memory are checked by the kernel. */
static int check_counts(const struct epx_comm *comm, const struct epx_call *call, int64_t *end_row)
{
    const struct epx_buffer buffers[] = {
        counts_buffer("sendcounts", call->sendcounts, comm->size, 0),
        counts_buffer("sdispls", call->sdispls, comm->size, 0),
    };

    EPX_TRY(epx_check_buffers(comm, buffers, 2));
    for (int r = 0; r < comm->size; r++) {
        int64_t end;

        if (call->sendcounts[r] < 0 || call->sdispls[r] < 0)
            return epx_fail_bad_count(r, call->sendcounts[r], call->sdispls[r]);
        EPX_FAIL_IF(__builtin_add_overflow(call->sendcounts[r], call->sdispls[r], &end),
                    EPX_ERR_COUNT, "sendcounts[%d] + sdispls[%d] overflows", r, r);
        if (call->sendcounts[r] && end > *end_row)
            *end_row = end;
    }
    return EPX_SUCCESS;
}

static int check_alltoallv(struct epx_comm *comm, int count, EPX_Datatype datatype,
                           EPX_Request *request, struct epx_call *call)
{
    int64_t end_row = 0;

    EPX_FAIL_IF(!request, EPX_ERR_ARG, "request is NULL");
    EPX_FAIL_IF(!call->sendcounts || !call->sdispls || !call->recvcounts || !call->rdispls,
                EPX_ERR_ARG, "an array of counts or displacements is NULL");
    EPX_FAIL_IF(call->recv_capacity < 0, EPX_ERR_COUNT, "recv_capacity is %lld",
                (long long)call->recv_capacity);
    EPX_TRY(epx_check_rows(count, datatype, 0, call));
    if (!epx_transport_device_ops(comm))
        EPX_TRY(check_counts(comm, call, &end_row));
    {
        struct epx_buffer buffers[] = {
            epx_rows_buffer("sendbuf", call->fields.at[0].in, end_row, call, 0),
            counts_buffer("sendcounts", call->sendcounts, comm->size, 0),
            counts_buffer("sdispls", call->sdispls, comm->size, 0),
            epx_rows_buffer("recvbuf", call->fields.at[0].out, call->recv_capacity, call, 1),
            counts_buffer("recvcounts", call->recvcounts, comm->size, 1),
            counts_buffer("rdispls", call->rdispls, comm->size, 1),
        };

        return epx_check_buffers(comm, buffers, 6);
    }
}

/*
 * EPX_Alltoallv - exchange rows with counts that only the sender knows.
 *
 * Collective, nonblocking. All buffers and arrays belong to the library until the request
 * completes; counts and displacements are in rows and lie in the communicator's memory space.
 * Input: sendbuf; sendcounts, sdispls, [R]; recv_capacity, rows of recvbuf; count, elements of a
 * row; datatype, any; comm; stream, that the work is queued on (host memory: ignored).
 * Output: recvbuf, rows packed by source rank; recvcounts, rdispls, [R]; request.
 * Errors: EPX_ERR_COMM, EPX_ERR_ARG, EPX_ERR_TYPE, EPX_ERR_COUNT, EPX_ERR_BUFFER. The request
 * completes with EPX_ERR_TRUNCATE on a rank that lacks room: recvbuf is not written, recvcounts
 * and rdispls are, other ranks are unharmed; with EPX_ERR_ARG on all ranks if the length of a
 * row differs; with EPX_ERR_TIMEOUT.
 */
int EPX_Alltoallv(const void *sendbuf, const int64_t sendcounts[], const int64_t sdispls[],
                  void *recvbuf, int64_t recvcounts[], int64_t rdispls[], int64_t recv_capacity,
                  int count, EPX_Datatype datatype, EPX_Comm comm, EPX_Stream stream,
                  EPX_Request *request)
{
    struct epx_call call = {.verb = EPX_VERB_ALLTOALLV,
                            .stream = stream,
                            .fields = {1, {{sendbuf, recvbuf, 0}}},
                            .sendcounts = sendcounts,
                            .sdispls = sdispls,
                            .recvcounts = recvcounts,
                            .rdispls = rdispls,
                            .recv_capacity = recv_capacity};
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    rc = check_alltoallv(comm, count, datatype, request, &call);
    if (rc == EPX_SUCCESS)
        rc = epx_submit(comm, NULL, &call, request);
    return epx_api_return(comm, rc);
}
