/* SPDX-License-Identifier: BSD-3-Clause */
/* api_alltoallv.c - EPX_Alltoallv, EPX_Neighbor_alltoallv and the persistent ones: checks and
 * hand-over. */
#include "api/api.h"
#include "api/profile.h"
#include "coll/alltoallv.h"

EPX_PROFILED(Alltoallv)
EPX_PROFILED(Alltoallv_init)
EPX_PROFILED(Neighbor_alltoallv)
EPX_PROFILED(Neighbor_alltoallv_init)

/* The call of one of these functions, which have the same arguments. */
#define EXCHANGE_CALL(of_verb, on_graph)                                                           \
    {                                                                                              \
        .verb = (of_verb), .graph = (on_graph), .stream = stream,                                  \
        .fields = {1, {{sendbuf, recvbuf, 0}}}, .sendcounts = sendcounts, .sdispls = sdispls,      \
        .recvcounts = recvcounts, .rdispls = rdispls, .recv_capacity = recv_capacity               \
    }

static int exchange(struct epx_comm *comm, struct epx_call *call, int count, EPX_Datatype datatype,
                    EPX_Request *request)
{
    int rc = epx_check_exchange(count, datatype, request, call);

    if (rc == EPX_SUCCESS)
        rc = epx_check_exchange_rows(comm, call);
    if (rc == EPX_SUCCESS)
        rc = epx_submit(comm, NULL, call, request);
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
    epx_request_set_call(made, call);
    epx_prepare(made);
    if (flags & EPX_FIXED_COUNTS)
        rc = epx_alltoallv_keep_counts(made);
    if (rc != EPX_SUCCESS)
        epx_request_free(made);
    else
        *request = made;
    return rc;
}

/* What a persistent request is made of beside its call. */
struct persistent {
    int count;
    EPX_Datatype datatype;
    int flags;
};

static int exchange_init(struct epx_comm *comm, struct epx_call *call, struct persistent made_of,
                         EPX_Request *request)
{
    int rc = epx_check_exchange(made_of.count, made_of.datatype, request, call);

    if (rc == EPX_SUCCESS)
        rc = check_init(comm, call, made_of.flags);
    if (rc == EPX_SUCCESS)
        rc = make_persistent(comm, call, made_of.flags, request);
    return epx_api_return(comm, rc);
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
    struct epx_call call = EXCHANGE_CALL(EPX_VERB_ALLTOALLV, NULL);

    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    call.graph = comm->everyone;
    return exchange(comm, &call, count, datatype, request);
}

/*
 * EPX_Neighbor_alltoallv - exchange rows with the neighbours of a graph.
 *
 * Collective, nonblocking, as EPX_Alltoallv, with the destinations and sources of the graph in the
 * place of all ranks: sendcounts, sdispls, [outdegree]; recvcounts, rdispls, [indegree]; received
 * rows are packed in the order of the sources. On host memory a rank without neighbours completes
 * at once.
 * Errors: EPX_ERR_ARG for a graph that is none; else as EPX_Alltoallv. Where the length of a row
 * differs on the two ranks of an edge the request completes with EPX_ERR_ARG on both.
 */
int EPX_Neighbor_alltoallv(const void *sendbuf, const int64_t sendcounts[], const int64_t sdispls[],
                           void *recvbuf, int64_t recvcounts[], int64_t rdispls[],
                           int64_t recv_capacity, int count, EPX_Datatype datatype, EPX_Graph graph,
                           EPX_Stream stream, EPX_Request *request)
{
    struct epx_call call = EXCHANGE_CALL(EPX_VERB_NEIGHBOR_ALLTOALLV, graph);

    EPX_API_ENTER();
    EPX_TRY(epx_api_graph(graph));
    return exchange(graph->comm, &call, count, datatype, request);
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
    struct epx_call call = EXCHANGE_CALL(EPX_VERB_ALLTOALLV, NULL);
    struct persistent made_of = {count, datatype, flags};

    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    call.graph = comm->everyone;
    return exchange_init(comm, &call, made_of, request);
}

/*
 * EPX_Neighbor_alltoallv_init - make a persistent EPX_Neighbor_alltoallv.
 *
 * Collective; waits for no rank and sends nothing. As EPX_Alltoallv_init, with the arrays of
 * EPX_Neighbor_alltoallv. The request holds the graph, which may be freed before it.
 * Errors: as EPX_Neighbor_alltoallv and EPX_Alltoallv_init.
 */
int EPX_Neighbor_alltoallv_init(const void *sendbuf, const int64_t sendcounts[],
                                const int64_t sdispls[], void *recvbuf, int64_t recvcounts[],
                                int64_t rdispls[], int64_t recv_capacity, int count,
                                EPX_Datatype datatype, EPX_Graph graph, EPX_Stream stream,
                                int flags, EPX_Request *request)
{
    struct epx_call call = EXCHANGE_CALL(EPX_VERB_NEIGHBOR_ALLTOALLV, graph);
    struct persistent made_of = {count, datatype, flags};

    EPX_API_ENTER();
    EPX_TRY(epx_api_graph(graph));
    return exchange_init(graph->comm, &call, made_of, request);
}
