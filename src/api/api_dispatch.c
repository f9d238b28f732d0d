/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * api_dispatch.c - EPX_Dispatch, EPX_Route_dispatch and those of several fields: checks and
 * hand-over. A dispatch of one array of rows is one of a list of one field.
 */
#include "api/api.h"
#include "api/profile.h"
#include "coll/attach.h"
#include "kernels/element.h"

EPX_PROFILED(Dispatch)
EPX_PROFILED(Dispatch_fields)
EPX_PROFILED(Route_dispatch)
EPX_PROFILED(Route_dispatch_fields)

/* The arrays that the user gave, with an element for each field. */
struct field_list {
    int num;
    const void *const *sendbufs;
    void *const *recvbufs;
    const int *counts;
    const EPX_Datatype *datatypes;
};

/* The arguments of a field in messages. */
struct field_names {
    const char *sendbuf, *recvbuf, *count, *datatype;
};

static const struct field_names *names_of(const struct epx_call *call, int f)
{
    static const struct field_names plain = {"sendbuf", "recvbuf", "count", "datatype"};
    static const struct field_names listed[EPX_MAX_FIELDS] = {
        {"sendbufs[0]", "recvbufs[0]", "counts[0]", "datatypes[0]"},
        {"sendbufs[1]", "recvbufs[1]", "counts[1]", "datatypes[1]"},
        {"sendbufs[2]", "recvbufs[2]", "counts[2]", "datatypes[2]"},
        {"sendbufs[3]", "recvbufs[3]", "counts[3]", "datatypes[3]"},
    };

    return epx_verb_has_fields(call->verb) ? &listed[f] : &plain;
}

static int check_list(const struct field_list *list)
{
    EPX_FAIL_IF(list->num < 1 || list->num > EPX_MAX_FIELDS, EPX_ERR_ARG,
                "nfields is %d, want 1 to %d", list->num, EPX_MAX_FIELDS);
    EPX_FAIL_IF(!list->sendbufs, EPX_ERR_ARG, "sendbufs is NULL");
    EPX_FAIL_IF(!list->recvbufs, EPX_ERR_ARG, "recvbufs is NULL");
    EPX_FAIL_IF(!list->counts, EPX_ERR_ARG, "counts is NULL");
    EPX_FAIL_IF(!list->datatypes, EPX_ERR_ARG, "datatypes is NULL");
    return EPX_SUCCESS;
}

/* Ranks on device memory tell each other the length of a row of a field behind the first in 32
 * bits. */
static int check_lengths(const struct epx_route *route, const struct epx_call *call)
{
    const struct epx_fields *fields = &call->fields;

    for (int f = 1; f < fields->num && epx_transport_device_ops(route->comm); f++)
        EPX_FAIL_IF(fields->at[f].bytes >= UINT32_MAX, EPX_ERR_COUNT,
                    "%s makes rows of %lld bytes, device memory takes 4 GiB in each field but the "
                    "first",
                    names_of(call, f)->count, (long long)fields->at[f].bytes);
    return EPX_SUCCESS;
}

/* Copies the list into the call, so that the user's arrays may be reused. */
static int take_fields(const struct epx_route *route, const struct field_list *list,
                       struct epx_call *call)
{
    EPX_TRY(check_list(list));
    for (int f = 0; f < list->num; f++) {
        const struct field_names *names = names_of(call, f);
        struct epx_row_type type = {names->count, names->datatype, list->counts[f],
                                    list->datatypes[f]};
        struct epx_field *field = &call->fields.at[f];

        field->in = list->sendbufs[f];
        field->out = list->recvbufs[f];
        EPX_TRY(epx_check_row_type(call->verb, &type, &field->bytes));
    }
    call->fields.num = list->num;
    call->datatype = list->datatypes[0];
    EPX_TRY(check_lengths(route, call));
    return epx_check_row_bytes(route->attr.max_row_bytes, call);
}

static struct epx_buffer field_buffer(const struct epx_call *call, int f, EPX_Datatype datatype,
                                      int received)
{
    const struct field_names *names = names_of(call, f);
    const struct epx_field *field = &call->fields.at[f];
    struct epx_buffer buffer = {
        .name = received ? names->recvbuf : names->sendbuf,
        .address = received ? field->out : field->in,
        .rows = received ? call->recv_capacity : call->num_tokens,
        .row_bytes = field->bytes,
        .alignment = epx_datatype_bytes(datatype),
        .written = received,
        .required = 1,
    };

    return buffer;
}

static int check_buffers(const struct epx_route *route, const struct field_list *list,
                         const struct epx_call *call)
{
    struct epx_buffer buffers[EPX_MOST_BUFFERS];
    int num = 0;

    if (epx_verb_routes(call->verb))
        buffers[num++] = epx_ids_buffer(route, call->expert_ids, call->num_tokens);
    for (int f = 0; f < list->num; f++)
        buffers[num++] = field_buffer(call, f, list->datatypes[f], 0);
    buffers[num++] =
        epx_weights_buffer("weights", call->weights_in, call->num_tokens, route->attr.top_k, 0);
    for (int f = 0; f < list->num; f++)
        buffers[num++] = field_buffer(call, f, list->datatypes[f], 1);
    buffers[num++] = epx_weights_buffer("recv_weights", call->weights_out, call->recv_capacity,
                                        epx_route_weights_per_row(route), 1);
    return epx_check_buffers(route->comm, buffers, num);
}

/* Checks the tokens that a routing routes, or takes those that were routed last. */
static int take_tokens(const struct epx_route *route, const EPX_Request *request,
                       struct epx_call *call)
{
    if (!epx_verb_routes(call->verb))
        return epx_check_routed(route, request, call);
    call->recv_capacity = route->next_capacity;
    call->counts = route->counts;
    return epx_check_tokens(route, call->num_tokens, request);
}

static int dispatch(struct epx_route *route, const struct field_list *list, struct epx_call *call,
                    EPX_Request *request)
{
    EPX_TRY(take_tokens(route, request, call));
    EPX_TRY(take_fields(route, list, call));
    EPX_TRY(check_buffers(route, list, call));
    EPX_TRY(epx_submit(route->comm, route, call, request));
    if (epx_verb_routes(call->verb))
        epx_note_routing(route, call);
    return EPX_SUCCESS;
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
    struct field_list list = {1, &sendbuf, &recvbuf, &count, &datatype};
    struct epx_call call = {.verb = EPX_VERB_DISPATCH,
                            .stream = stream,
                            .weights_in = weights,
                            .weights_out = recv_weights};

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    return epx_api_return(route->comm, dispatch(route, &list, &call, request));
}

/*
 * EPX_Dispatch_fields - send several arrays of rows with one routing.
 *
 * Collective, nonblocking. As EPX_Dispatch for each field, all in one operation; the arrays of
 * addresses, counts and datatypes may be reused when the call returns, all buffers belong to the
 * library until the request completes.
 * Input: nfields, 1 to EPX_MAX_FIELDS; sendbufs[f], [T][counts[f]]; counts; datatypes, any;
 * weights, route, stream as EPX_Dispatch. Output: recvbufs[f], [capacity][counts[f]], in the
 * route's layout, padding rows zero; recv_weights, request as EPX_Dispatch.
 * Errors: those of EPX_Dispatch; EPX_ERR_ARG for nfields out of range or an array that is NULL;
 * EPX_ERR_COUNT if a row of all fields together is longer than max_row_bytes. The request completes
 * with EPX_ERR_ARG on all ranks, its message naming the field, if number of fields or the bytes of
 * a row differ across ranks; the routing stays valid.
 * See also: EPX_Dispatch, EPX_Route_dispatch_fields.
 */
int EPX_Dispatch_fields(int nfields, const void *const sendbufs[], void *const recvbufs[],
                        const int counts[], const EPX_Datatype datatypes[], const float *weights,
                        float *recv_weights, EPX_Route route, EPX_Stream stream,
                        EPX_Request *request)
{
    struct field_list list = {nfields, sendbufs, recvbufs, counts, datatypes};
    struct epx_call call = {.verb = EPX_VERB_DISPATCH_FIELDS,
                            .stream = stream,
                            .weights_in = weights,
                            .weights_out = recv_weights};

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    return epx_api_return(route->comm, dispatch(route, &list, &call, request));
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
    struct field_list list = {1, &sendbuf, &recvbuf, &count, &datatype};
    struct epx_call call = {.verb = EPX_VERB_ROUTE_DISPATCH,
                            .stream = stream,
                            .num_tokens = num_tokens,
                            .expert_ids = expert_ids,
                            .weights_in = weights,
                            .weights_out = recv_weights};

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    return epx_api_return(route->comm, dispatch(route, &list, &call, request));
}

/*
 * EPX_Route_dispatch_fields - decide where every token goes, and send several arrays of rows there.
 *
 * Collective, nonblocking; EPX_Route_tokens and then EPX_Dispatch_fields in one call, with the same
 * result in every byte. All ranks call it, or none. What it takes and gives is that of
 * EPX_Route_dispatch and EPX_Dispatch_fields.
 * Errors: those of EPX_Route_dispatch and EPX_Dispatch_fields. If the lists of fields differ across
 * ranks nothing is routed and the routing is void.
 * See also: EPX_Route_dispatch, EPX_Dispatch_fields.
 */
int EPX_Route_dispatch_fields(const void *expert_ids, int num_tokens, int nfields,
                              const void *const sendbufs[], void *const recvbufs[],
                              const int counts[], const EPX_Datatype datatypes[],
                              const float *weights, float *recv_weights, EPX_Route route,
                              EPX_Stream stream, EPX_Request *request)
{
    struct field_list list = {nfields, sendbufs, recvbufs, counts, datatypes};
    struct epx_call call = {.verb = EPX_VERB_ROUTE_DISPATCH_FIELDS,
                            .stream = stream,
                            .num_tokens = num_tokens,
                            .expert_ids = expert_ids,
                            .weights_in = weights,
                            .weights_out = recv_weights};

    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    return epx_api_return(route->comm, dispatch(route, &list, &call, request));
}
