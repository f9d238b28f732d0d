/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * api_coll.c - EPX_Combine and the backwards: checks and hand-over. api_dispatch.c has the
 * dispatches, api_alltoallv.c the exchange without a route.
 */
#include "api/api.h"
#include "api/profile.h"

EPX_PROFILED(Combine)
EPX_PROFILED(Dispatch_backward)
EPX_PROFILED(Combine_backward)

static int check_route_call(const struct epx_route *route, int count, EPX_Datatype datatype,
                            const EPX_Request *request, struct epx_call *call)
{
    EPX_TRY(epx_check_routed(route, request, call));
    return epx_check_rows(count, datatype, route->attr.max_row_bytes, call);
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
                            .fields = {1, {{sendbuf, recvbuf, 0}}},
                            .weights_in = weights};
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    rc = check_route_call(route, count, datatype, request, &call);
    if (rc == EPX_SUCCESS) {
        struct epx_buffer buffers[] = {
            epx_rows_buffer("sendbuf", sendbuf, call.recv_capacity, &call, 0),
            epx_weights_buffer("weights", weights, call.recv_capacity, 1, 0),
            epx_rows_buffer("recvbuf", recvbuf, call.num_tokens, &call, 1),
        };

        rc = epx_check_buffers(route->comm, buffers, 3);
    }
    if (rc == EPX_SUCCESS)
        rc = epx_submit(route->comm, route, &call, request);
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
                            .fields = {1, {{grad_recv, grad_send, 0}}},
                            .weights_in = grad_recv_weights,
                            .weights_out = grad_weights};
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    rc = check_route_call(route, count, datatype, request, &call);
    if (rc == EPX_SUCCESS) {
        struct epx_buffer buffers[] = {
            epx_rows_buffer("grad_recv", grad_recv, call.recv_capacity, &call, 0),
            epx_weights_buffer("grad_recv_weights", grad_recv_weights, call.recv_capacity,
                               epx_route_weights_per_row(route), 0),
            epx_rows_buffer("grad_send", grad_send, call.num_tokens, &call, 1),
            epx_weights_buffer("grad_weights", grad_weights, call.num_tokens, route->attr.top_k, 1),
        };

        rc = epx_check_buffers(route->comm, buffers, 4);
    }
    if (rc == EPX_SUCCESS)
        rc = epx_submit(route->comm, route, &call, request);
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
                            .fields = {1, {{grad, grad_sendbuf, 0}}},
                            .forward_in = sendbuf,
                            .weights_in = weights,
                            .weights_out = grad_slot_weights};
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    rc = check_route_call(route, count, datatype, request, &call);
    if (rc == EPX_SUCCESS) {
        struct epx_buffer buffers[] = {
            epx_rows_buffer("grad", grad, call.num_tokens, &call, 0),
            epx_rows_buffer("sendbuf", sendbuf, call.recv_capacity, &call, 0),
            epx_weights_buffer("weights", weights, call.recv_capacity, 1, 0),
            epx_rows_buffer("grad_sendbuf", grad_sendbuf, call.recv_capacity, &call, 1),
            epx_weights_buffer("grad_slot_weights", grad_slot_weights, call.recv_capacity, 1, 1),
        };

        buffers[1].required = grad_slot_weights != NULL;
        rc = epx_check_buffers(route->comm, buffers, 5);
    }
    if (rc == EPX_SUCCESS)
        rc = epx_submit(route->comm, route, &call, request);
    return epx_api_return(route->comm, rc);
}
