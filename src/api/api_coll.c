/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * api_coll.c - EPX_Combine, EPX_Combine_from and the backwards: checks and hand-over.
 * api_dispatch.c has the dispatches, api_alltoallv.c the exchange without a route.
 */
#include "api/api.h"
#include "api/profile.h"

EPX_PROFILED(Combine)
EPX_PROFILED(Combine_from)
EPX_PROFILED(Dispatch_backward)
EPX_PROFILED(Combine_backward)

static int check_route_call(const struct epx_route *route, int count, EPX_Datatype datatype,
                            const EPX_Request *request, struct epx_call *call)
{
    EPX_TRY(epx_check_routed(route, request, call));
    return epx_check_rows(count, datatype, route->attr.max_row_bytes, call);
}

/* Takes the biases into the call, so that the user's array may be reused. */
static int take_biases(int num, const void *const biases[], struct epx_call *call)
{
    EPX_FAIL_IF(num < 0 || num > EPX_MAX_BIASES, EPX_ERR_ARG, "num_biases is %d, want 0 to %d", num,
                EPX_MAX_BIASES);
    EPX_FAIL_IF(num && !biases, EPX_ERR_ARG, "biases is NULL");
    call->num_biases = num;
    for (int b = 0; b < num; b++)
        call->biases[b] = biases[b];
    return EPX_SUCCESS;
}

static int check_combine_weights(const struct epx_route *route, const struct epx_call *call)
{
    EPX_FAIL_IF(call->weights_in && call->token_weights, EPX_ERR_ARG,
                "weights and token_weights are given, want one of them at most");
    EPX_FAIL_IF(call->token_weights && route->attr.layout == EPX_RANK_MAJOR, EPX_ERR_ARG,
                "token_weights are those of pairs: a row of the rank-major layout is of several");
    return EPX_SUCCESS;
}

static int check_combine_buffers(const struct epx_route *route, const struct epx_call *call)
{
    static const char *const names[EPX_MAX_BIASES] = {"biases[0]", "biases[1]"};
    const struct epx_field *rows = &call->fields.at[0];
    struct epx_buffer buffers[4 + EPX_MAX_BIASES] = {
        epx_slots_buffer("sendbuf", rows->in, call, 0),
        epx_slot_weights_buffer("weights", call->weights_in, call, 1, 0),
        epx_weights_buffer("token_weights", call->token_weights, call->num_tokens,
                           route->attr.top_k, 0),
        epx_rows_buffer("recvbuf", rows->out, call->num_tokens, call, 1),
    };

    for (int b = 0; b < call->num_biases; b++)
        buffers[4 + b] = epx_rows_buffer(names[b], call->biases[b], call->num_tokens, call, 0);
    return epx_check_buffers(route->comm, buffers, 4 + call->num_biases);
}

/* The arguments of a combine that are the same on all ranks, and its biases. */
struct combine_args {
    int count;
    EPX_Datatype datatype;
    int num_biases;
    const void *const *biases;
};

/* A combine whose buffers are set, but for the biases. */
static int combine(struct epx_route *route, const struct combine_args *args, struct epx_call *call,
                   EPX_Request *request)
{
    EPX_TRY(check_route_call(route, args->count, args->datatype, request, call));
    EPX_TRY(take_biases(args->num_biases, args->biases, call));
    EPX_TRY(check_combine_weights(route, call));
    EPX_TRY(check_combine_buffers(route, call));
    return epx_submit(route->comm, route, call, request);
}

static struct epx_call combine_call(const void *sendbuf, const float *weights, void *recvbuf,
                                    EPX_Stream stream)
{
    const struct epx_call call = {.verb = EPX_VERB_COMBINE,
                                  .stream = stream,
                                  .fields = {1, {{sendbuf, recvbuf, 0}}},
                                  .weights_in = weights};

    return call;
}

/*
 * EPX_Combine - bring the experts' rows home and sum them for each token.
 *
 * Collective, nonblocking. All buffers belong to the library until the request completes.
 * Input: sendbuf, [num_rows][count], one row a slot; weights, [num_rows] or NULL = 1; count;
 * datatype: float16, bfloat16, float32 (summed in float32) or float64; route; stream.
 * Output: recvbuf, [T][count], zero for a token without pairs; request.
 * The order of the sums and their roundings are fixed, see EPX_Combine(3): the bytes are the same
 * on every run and transport, but for sign and payload of a NaN.
 * Errors: as EPX_Dispatch.
 */
int EPX_Combine(const void *sendbuf, const float *weights, void *recvbuf, int count,
                EPX_Datatype datatype, EPX_Route route, EPX_Stream stream, EPX_Request *request)
{
    const struct combine_args args = {count, datatype, 0, NULL};
    struct epx_call call = combine_call(sendbuf, weights, recvbuf, stream);

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    return epx_api_return(route->comm, combine(route, &args, &call, request));
}

/*
 * EPX_Combine_from - bring the experts' rows home and add them to rows of the home rank.
 *
 * Collective, nonblocking. As EPX_Combine, which is this call without biases and token_weights: the
 * two fit together across ranks. All buffers belong to the library until the request completes; the
 * array of addresses may be reused when the call returns.
 * Input: sendbuf, weights, count, datatype, route, stream as EPX_Combine; num_biases, 0 to
 * EPX_MAX_BIASES, the same on all ranks; biases[b], [T][count] of datatype, which the sum of each
 * token starts from, unrounded; token_weights, [T][K], or NULL on all ranks: factors of the pairs
 * instead of weights, not in the rank-major layout.
 * Output: recvbuf, [T][count], for a token without pairs the sum of its biases; request.
 * Errors: as EPX_Combine; EPX_ERR_ARG if num_biases is out of range, or both weights are given. The
 * request completes with EPX_ERR_ARG on all ranks if ranks differ in num_biases, or in whether
 * token_weights are given.
 * See also: EPX_Combine.
 */
int EPX_Combine_from(const void *sendbuf, const float *weights, int num_biases,
                     const void *const biases[], const float *token_weights, void *recvbuf,
                     int count, EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                     EPX_Request *request)
{
    const struct combine_args args = {count, datatype, num_biases, biases};
    struct epx_call call = combine_call(sendbuf, weights, recvbuf, stream);

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    call.token_weights = token_weights;
    return epx_api_return(route->comm, combine(route, &args, &call, request));
}

/*
 * EPX_Dispatch_backward - gradients of what was dispatched.
 *
 * Collective, nonblocking. All buffers belong to the library until the request completes.
 * Input: grad_recv, [num_rows][count]; grad_recv_weights, shaped as recv_weights, or NULL on all
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
            epx_slots_buffer("grad_recv", grad_recv, &call, 0),
            epx_slot_weights_buffer("grad_recv_weights", grad_recv_weights, &call,
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

/* The call with as many rows as it writes. */
static struct epx_call with_zeroed_rows(const struct epx_route *route, const struct epx_call *call)
{
    struct epx_call written = *call;

    if (route->attr.zero_unused)
        written.num_rows = call->recv_capacity;
    return written;
}

/*
 * EPX_Combine_backward - gradients of what was combined.
 *
 * Collective, nonblocking. All buffers belong to the library until the request completes.
 * Input: grad, [T][count]; sendbuf, [num_rows][count], and weights, [num_rows] or NULL = 1, that
 * combine was given (sendbuf may be NULL if grad_slot_weights is); count; datatype; route; stream.
 * Output: grad_sendbuf, [num_rows][count], the slot's weight times the token's row of grad, each
 * product rounded once, padding zero; grad_slot_weights, [num_rows] or NULL, the dot product of
 * grad and sendbuf rows in the fixed shape of its manual page, padding zero; with zero_unused set
 * both have as many rows as the routing's capacity; request.
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
        const struct epx_call written = with_zeroed_rows(route, &call);
        struct epx_buffer buffers[] = {
            epx_rows_buffer("grad", grad, call.num_tokens, &call, 0),
            epx_slots_buffer("sendbuf", sendbuf, &call, 0),
            epx_slot_weights_buffer("weights", weights, &call, 1, 0),
            epx_slots_buffer("grad_sendbuf", grad_sendbuf, &written, 1),
            epx_slot_weights_buffer("grad_slot_weights", grad_slot_weights, &written, 1, 1),
        };

        buffers[1].required = grad_slot_weights != NULL;
        rc = epx_check_buffers(route->comm, buffers, 5);
    }
    if (rc == EPX_SUCCESS)
        rc = epx_submit(route->comm, route, &call, request);
    return epx_api_return(route->comm, rc);
}
