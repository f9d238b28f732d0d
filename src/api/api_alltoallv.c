/* SPDX-License-Identifier: BSD-3-Clause */
/* api_alltoallv.c - EPX_Alltoallv and EPX_Alltoallv_init: checks and hand-over. */
#include "api/api.h"
#include "api/profile.h"
#include "coll/alltoallv.h"

EPX_PROFILED(Alltoallv)
EPX_PROFILED(Alltoallv_init)

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
    rc = epx_check_exchange(count, datatype, request, &call);
    if (rc == EPX_SUCCESS)
        rc = epx_check_exchange_rows(comm, &call);
    if (rc == EPX_SUCCESS)
        rc = epx_submit(comm, NULL, &call, request);
    return epx_api_return(comm, rc);
}

static int check_init(const struct epx_comm *comm, const struct epx_call *call, int flags)
{
    EPX_FAIL_IF(flags & ~EPX_FIXED_COUNTS, EPX_ERR_ARG, "flags is %d, want 0 or EPX_FIXED_COUNTS",
                flags);
    return flags & EPX_FIXED_COUNTS ? epx_check_exchange_rows(comm, call)
                                    : epx_check_exchange_buffers(comm, call, 0);
}

static int make_persistent(struct epx_comm *comm, const struct epx_call *call, int flags,
                           EPX_Request *request)
{
    struct epx_request *made = epx_request_create(comm, NULL);
    int rc = EPX_SUCCESS;

    EPX_FAIL_IF(!made, EPX_ERR_NO_MEM, "no memory for a request");
    made->persistent = 1;
    made->call = *call;
    if (flags & EPX_FIXED_COUNTS)
        rc = epx_alltoallv_keep_counts(made);
    if (rc != EPX_SUCCESS)
        epx_request_free(made);
    else
        *request = made;
    return rc;
}

/*
 * EPX_Alltoallv_init - make a persistent EPX_Alltoallv, that EPX_Start starts again and again.
 *
 * Collective; waits for no rank and sends nothing. Buffers and arrays belong to the library while
 * the request is active, that is from EPX_Start to its completion.
 * Input: as EPX_Alltoallv; flags: 0, sendcounts and sdispls are read at each start; or
 * EPX_FIXED_COUNTS, once, here, on device memory by work on the stream. May differ by rank.
 * Output: request, inactive; EPX_Request_free frees it.
 * Errors: as EPX_Alltoallv; EPX_ERR_ARG for other flags, and with EPX_FIXED_COUNTS for a stream in
 * a capture; EPX_ERR_CUDA.
 */
int EPX_Alltoallv_init(const void *sendbuf, const int64_t sendcounts[], const int64_t sdispls[],
                       void *recvbuf, int64_t recvcounts[], int64_t rdispls[],
                       int64_t recv_capacity, int count, EPX_Datatype datatype, EPX_Comm comm,
                       EPX_Stream stream, int flags, EPX_Request *request)
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
    rc = epx_check_exchange(count, datatype, request, &call);
    if (rc == EPX_SUCCESS)
        rc = check_init(comm, &call, flags);
    if (rc == EPX_SUCCESS)
        rc = make_persistent(comm, &call, flags, request);
    return epx_api_return(comm, rc);
}
