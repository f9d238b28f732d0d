/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * api_coll.c - EPX_Dispatch, EPX_Route_dispatch, EPX_Combine, the backwards, EPX_Alltoallv: checks
 * and hand-over.
 */
#include "api/api.h"
#include "api/profile.h"
#include "coll/attach.h"
#include "coll/ground.h"
#include "core/progress.h"
#include "core/verdict.h"
#include "kernels/element.h"

EPX_PROFILED(Dispatch)
EPX_PROFILED(Route_dispatch)
EPX_PROFILED(Combine)
EPX_PROFILED(Dispatch_backward)
EPX_PROFILED(Combine_backward)
EPX_PROFILED(Alltoallv)

/* Where handles of MPI are integers, C lets a datatype of MPI pass for one of EPX: names it. */
static int fail_type(EPX_Datatype datatype)
{
    static const struct {
        MPI_Datatype given;
        const char *name, *wanted;
    } types[] = {
        {MPI_BYTE, "MPI_BYTE", "EPX_BYTE"},
        {MPI_CHAR, "MPI_CHAR", "EPX_BYTE"},
        {MPI_INT8_T, "MPI_INT8_T", "EPX_BYTE"},
        {MPI_UINT8_T, "MPI_UINT8_T", "EPX_BYTE"},
        {MPI_FLOAT, "MPI_FLOAT", "EPX_FLOAT32"},
        {MPI_DOUBLE, "MPI_DOUBLE", "EPX_FLOAT64"},
        {MPI_INT, "MPI_INT", "rows of EPX_BYTE"},
        {MPI_INT32_T, "MPI_INT32_T", "rows of EPX_BYTE"},
        {MPI_LONG, "MPI_LONG", "rows of EPX_BYTE"},
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        EPX_FAIL_IF((EPX_Datatype)(intptr_t)types[i].given == datatype, EPX_ERR_TYPE,
                    "datatype is %s, want %s", types[i].name, types[i].wanted);
    return epx_fail(EPX_ERR_TYPE, "datatype is %d, which is none of EPX", datatype);
}

/* Checks what every verb has, and fills in the call. */
static int check_rows(int count, EPX_Datatype datatype, int64_t max_row_bytes,
                      struct epx_call *call)
{
    int bytes = epx_datatype_bytes(datatype);
    int adds = !epx_verb_dispatches(call->verb) && call->verb != EPX_VERB_ALLTOALLV;

    if (!bytes)
        return fail_type(datatype);
    EPX_FAIL_IF(adds && !epx_datatype_adds(datatype), EPX_ERR_TYPE,
                "%s cannot be added, want EPX_FLOAT16, EPX_BFLOAT16, EPX_FLOAT32 or EPX_FLOAT64",
                epx_datatype_name(datatype));
    EPX_FAIL_IF(count < 0, EPX_ERR_COUNT, "count is %d", count);
    call->datatype = datatype;
    call->count = count;
    call->row_bytes = (int64_t)count * bytes;
    EPX_FAIL_IF(max_row_bytes && call->row_bytes > max_row_bytes, EPX_ERR_COUNT,
                "a row of %lld bytes, max_row_bytes is %lld", (long long)call->row_bytes,
                (long long)max_row_bytes);
    return EPX_SUCCESS;
}

static int check_route_call(const struct epx_route *route, int count, EPX_Datatype datatype,
                            EPX_Request *request, struct epx_call *call)
{
    EPX_FAIL_IF(!request, EPX_ERR_ARG, "request is NULL");
    EPX_FAIL_IF(!route->routed, EPX_ERR_ROUTE, "no tokens were routed on the route yet");
    call->num_tokens = route->num_tokens;
    call->recv_capacity = route->routed_capacity;
    return check_rows(count, datatype, route->attr.max_row_bytes, call);
}

/* Gives rows of no bytes that have no address one to compute with, which nobody reads. */
static void take_any_address(struct epx_call *call)
{
    static char none;

    if (call->row_bytes)
        return;
    call->rows_in = call->rows_in ? call->rows_in : &none;
    call->forward_in = call->forward_in ? call->forward_in : &none;
    call->rows_out = call->rows_out ? call->rows_out : &none;
}

static int submit(struct epx_comm *comm, struct epx_route *route, const struct epx_call *call,
                  EPX_Request *request)
{
    struct epx_request *queued = epx_request_create(comm, route);

    EPX_FAIL_IF(!queued, EPX_ERR_NO_MEM, "no memory for a request");
    queued->call = *call;
    if (!epx_transport_device_ops(comm))
        take_any_address(&queued->call);
    epx_ground_prepare(queued);
    EPX_TRY(epx_request_submit(queued));
    *request = queued;
    return EPX_SUCCESS;
}

static struct epx_buffer rows_buffer(const char *name, const void *address, int64_t rows,
                                     const struct epx_call *call, int written)
{
    int element = epx_datatype_bytes(call->datatype);
    struct epx_buffer buffer = {name, address, rows, call->row_bytes, element, written, 1};

    return buffer;
}

static struct epx_buffer weights_buffer(const char *name, const float *address, int64_t rows,
                                        int64_t per_row, int written)
{
    const int element = sizeof(float);
    struct epx_buffer buffer = {name, address, rows, per_row * element, element, written, 0};

    return buffer;
}

static struct epx_buffer counts_buffer(const char *name, const int64_t *address, int ranks,
                                       int written)
{
    const int element = sizeof(int64_t);
    struct epx_buffer buffer = {name, address, ranks, element, element, written, 1};

    return buffer;
}

/*
 * EPX_Dispatch - send every token to the ranks that own its experts.
 *
 * Collective, nonblocking. All buffers belong to the library until the request completes.
 * Input: sendbuf, [T][count], T of the last EPX_Route_tokens; weights, [T][K] or NULL on all
 * ranks; count; datatype, any; route; stream, that the work is queued on (host memory: ignored).
 * Output: recvbuf, [capacity][count], in the route's layout, padding rows zero; recv_weights,
 * [capacity], rank-major [capacity][K], or NULL; request. Rows past num_rows, or past the count
 * of a slab, are left alone unless zero_unused is set.
 * Errors: EPX_ERR_ROUTE, EPX_ERR_ARG, EPX_ERR_TYPE, EPX_ERR_COUNT, EPX_ERR_BUFFER. The request
 * completes with the routing's EPX_ERR_TRUNCATE; with EPX_ERR_ARG on all ranks if rows, weights
 * or operations differ across ranks, nothing is stored then; with EPX_ERR_TIMEOUT.
 * See also: EPX_Combine, EPX_Dispatch_backward.
 */
int EPX_Dispatch(const void *sendbuf, const float *weights, void *recvbuf, float *recv_weights,
                 int count, EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                 EPX_Request *request)
{
    struct epx_call call = {.verb = EPX_VERB_DISPATCH,
                            .stream = stream,
                            .rows_in = sendbuf,
                            .weights_in = weights,
                            .rows_out = recvbuf,
                            .weights_out = recv_weights};
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    rc = check_route_call(route, count, datatype, request, &call);
    if (rc == EPX_SUCCESS) {
        struct epx_buffer buffers[] = {
            rows_buffer("sendbuf", sendbuf, call.num_tokens, &call, 0),
            weights_buffer("weights", weights, call.num_tokens, route->attr.top_k, 0),
            rows_buffer("recvbuf", recvbuf, call.recv_capacity, &call, 1),
            weights_buffer("recv_weights", recv_weights, call.recv_capacity,
                           epx_route_weights_per_row(route), 1),
        };

        rc = epx_check_buffers(route->comm, buffers, 4);
    }
    if (rc == EPX_SUCCESS)
        rc = submit(route->comm, route, &call, request);
    return epx_api_return(route->comm, rc);
}

static int check_route_dispatch(const struct epx_route *route, int count, EPX_Datatype datatype,
                                const EPX_Request *request, struct epx_call *call)
{
    EPX_TRY(epx_check_tokens(route, call->num_tokens, request));
    EPX_TRY(check_rows(count, datatype, route->attr.max_row_bytes, call));
    {
        struct epx_buffer buffers[] = {
            epx_ids_buffer(route, call->expert_ids, call->num_tokens),
            rows_buffer("sendbuf", call->rows_in, call->num_tokens, call, 0),
            weights_buffer("weights", call->weights_in, call->num_tokens, route->attr.top_k, 0),
            rows_buffer("recvbuf", call->rows_out, call->recv_capacity, call, 1),
            weights_buffer("recv_weights", call->weights_out, call->recv_capacity,
                           epx_route_weights_per_row(route), 1),
        };

        return epx_check_buffers(route->comm, buffers, 5);
    }
}

/*
 * EPX_Route_dispatch - decide where every token goes, and send it there.
 *
 * Collective, nonblocking; EPX_Route_tokens and then EPX_Dispatch in one call, with the same result
 * in every byte. All ranks call it, or none. All buffers belong to the library until the request
 * completes.
 * Input: expert_ids and num_tokens as EPX_Route_tokens; sendbuf, weights, count, datatype as
 * EPX_Dispatch; route; stream, that the work is queued on (host memory: ignored).
 * Output: recvbuf, recv_weights as EPX_Dispatch; request; when it completes the view is filled too.
 * Errors: those of EPX_Route_tokens and EPX_Dispatch. The request completes with EPX_ERR_TRUNCATE
 * on all ranks if a rank lacks room (EPX_OVERFLOW_ERROR), no user buffer is written then; with
 * EPX_ERR_ARG on the rank that gave ids out of range, which count as -1, and the rest is sent; with
 * EPX_ERR_ARG on all ranks if rows, weights or operations differ across ranks, nothing is routed
 * then and the routing is void; with EPX_ERR_TIMEOUT.
 * See also: EPX_Route_tokens, EPX_Dispatch.
 */
int EPX_Route_dispatch(const void *expert_ids, int num_tokens, const void *sendbuf,
                       const float *weights, void *recvbuf, float *recv_weights, int count,
                       EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                       EPX_Request *request)
{
    struct epx_call call = {.verb = EPX_VERB_ROUTE_DISPATCH,
                            .stream = stream,
                            .num_tokens = num_tokens,
                            .expert_ids = expert_ids,
                            .rows_in = sendbuf,
                            .weights_in = weights,
                            .rows_out = recvbuf,
                            .weights_out = recv_weights};
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    call.recv_capacity = route->next_capacity;
    rc = check_route_dispatch(route, count, datatype, request, &call);
    if (rc == EPX_SUCCESS)
        rc = submit(route->comm, route, &call, request);
    if (rc == EPX_SUCCESS)
        epx_note_routing(route, &call);
    return epx_api_return(route->comm, rc);
}

/*
 * EPX_Combine - bring the experts' rows home and sum them for each token.
 *
 * Collective, nonblocking. All buffers belong to the library until the request completes.
 * Input: sendbuf, [capacity][count], one row a slot; weights, [capacity] or NULL = 1; count;
 * datatype: float16, bfloat16, float32 (summed in float32) or float64; route; stream.
 * Output: recvbuf, [T][count], zero for a token without pairs; request.
 * The order of the sums and their roundings are fixed, see EPX_Combine(3): the bytes are the same
 * on every run and transport, but for sign and payload of a NaN.
 * Errors: as EPX_Dispatch.
 */
int EPX_Combine(const void *sendbuf, const float *weights, void *recvbuf, int count,
                EPX_Datatype datatype, EPX_Route route, EPX_Stream stream, EPX_Request *request)
{
    struct epx_call call = {.verb = EPX_VERB_COMBINE,
                            .stream = stream,
                            .rows_in = sendbuf,
                            .weights_in = weights,
                            .rows_out = recvbuf};
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    rc = check_route_call(route, count, datatype, request, &call);
    if (rc == EPX_SUCCESS) {
        struct epx_buffer buffers[] = {
            rows_buffer("sendbuf", sendbuf, call.recv_capacity, &call, 0),
            weights_buffer("weights", weights, call.recv_capacity, 1, 0),
            rows_buffer("recvbuf", recvbuf, call.num_tokens, &call, 1),
        };

        rc = epx_check_buffers(route->comm, buffers, 3);
    }
    if (rc == EPX_SUCCESS)
        rc = submit(route->comm, route, &call, request);
    return epx_api_return(route->comm, rc);
}

/*
 * EPX_Dispatch_backward - gradients of what was dispatched.
 *
 * Collective, nonblocking. All buffers belong to the library until the request completes.
 * Input: grad_recv, [capacity][count]; grad_recv_weights, shaped as recv_weights, or NULL on all
 * ranks; count; datatype as EPX_Combine; route; stream.
 * Output: grad_send, [T][count], the sum over a token's pairs; grad_weights, [T][K] or NULL, zero
 * for pairs that were not sent, left alone if grad_recv_weights is NULL; request.
 * Errors: as EPX_Dispatch.
 */
int EPX_Dispatch_backward(const void *grad_recv, const float *grad_recv_weights, void *grad_send,
                          float *grad_weights, int count, EPX_Datatype datatype, EPX_Route route,
                          EPX_Stream stream, EPX_Request *request)
{
    struct epx_call call = {.verb = EPX_VERB_DISPATCH_BACKWARD,
                            .stream = stream,
                            .rows_in = grad_recv,
                            .weights_in = grad_recv_weights,
                            .rows_out = grad_send,
                            .weights_out = grad_weights};
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    rc = check_route_call(route, count, datatype, request, &call);
    if (rc == EPX_SUCCESS) {
        struct epx_buffer buffers[] = {
            rows_buffer("grad_recv", grad_recv, call.recv_capacity, &call, 0),
            weights_buffer("grad_recv_weights", grad_recv_weights, call.recv_capacity,
                           epx_route_weights_per_row(route), 0),
            rows_buffer("grad_send", grad_send, call.num_tokens, &call, 1),
            weights_buffer("grad_weights", grad_weights, call.num_tokens, route->attr.top_k, 1),
        };

        rc = epx_check_buffers(route->comm, buffers, 4);
    }
    if (rc == EPX_SUCCESS)
        rc = submit(route->comm, route, &call, request);
    return epx_api_return(route->comm, rc);
}

/*
 * EPX_Combine_backward - gradients of what was combined.
 *
 * Collective, nonblocking. All buffers belong to the library until the request completes.
 * Input: grad, [T][count]; sendbuf, [capacity][count], and weights, [capacity] or NULL = 1, that
 * combine was given (sendbuf may be NULL if grad_slot_weights is); count; datatype; route; stream.
 * Output: grad_sendbuf, [capacity][count], the slot's weight times the token's row of grad, each
 * product rounded once, padding zero; grad_slot_weights, [capacity] or NULL, the dot product of
 * grad and sendbuf rows in the fixed shape of its manual page, padding zero; request.
 * Errors: as EPX_Dispatch.
 */
int EPX_Combine_backward(const void *grad, const void *sendbuf, const float *weights,
                         void *grad_sendbuf, float *grad_slot_weights, int count,
                         EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                         EPX_Request *request)
{
    struct epx_call call = {.verb = EPX_VERB_COMBINE_BACKWARD,
                            .stream = stream,
                            .rows_in = grad,
                            .forward_in = sendbuf,
                            .weights_in = weights,
                            .rows_out = grad_sendbuf,
                            .weights_out = grad_slot_weights};
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    rc = check_route_call(route, count, datatype, request, &call);
    if (rc == EPX_SUCCESS) {
        struct epx_buffer buffers[] = {
            rows_buffer("grad", grad, call.num_tokens, &call, 0),
            rows_buffer("sendbuf", sendbuf, call.recv_capacity, &call, 0),
            weights_buffer("weights", weights, call.recv_capacity, 1, 0),
            rows_buffer("grad_sendbuf", grad_sendbuf, call.recv_capacity, &call, 1),
            weights_buffer("grad_slot_weights", grad_slot_weights, call.recv_capacity, 1, 1),
        };

        buffers[1].required = grad_slot_weights != NULL;
        rc = epx_check_buffers(route->comm, buffers, 5);
    }
    if (rc == EPX_SUCCESS)
        rc = submit(route->comm, route, &call, request);
    return epx_api_return(route->comm, rc);
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
    EPX_TRY(check_rows(count, datatype, 0, call));
    if (!epx_transport_device_ops(comm))
        EPX_TRY(check_counts(comm, call, &end_row));
    {
        struct epx_buffer buffers[] = {
            rows_buffer("sendbuf", call->rows_in, end_row, call, 0),
            counts_buffer("sendcounts", call->sendcounts, comm->size, 0),
            counts_buffer("sdispls", call->sdispls, comm->size, 0),
            rows_buffer("recvbuf", call->rows_out, call->recv_capacity, call, 1),
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
                            .rows_in = sendbuf,
                            .rows_out = recvbuf,
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
        rc = submit(comm, NULL, &call, request);
    return epx_api_return(comm, rc);
}
