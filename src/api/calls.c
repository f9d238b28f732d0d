/* SPDX-License-Identifier: BSD-3-Clause */
/* calls.c - what functions that move rows have in common: checks of rows, and the hand-over. */
#include <stddef.h>

#include "api/api.h"
#include "api/profile.h"
#include "coll/attach.h"
#include "coll/ground.h"
#include "core/progress.h"
#include "core/verdict.h"
#include "kernels/element.h"

/* Where handles of MPI are integers, C lets a datatype of MPI pass for one of EPX: names it. */
static int fail_type(const char *name, EPX_Datatype datatype)
{
    const struct epx_mpi *mpi = epx_api_mpi();
    const char *wanted, *given = mpi ? mpi->datatype_name(datatype, &wanted) : NULL;

    EPX_FAIL_IF(given, EPX_ERR_TYPE, "%s is %s, want %s", name, given, wanted);
    return epx_fail(EPX_ERR_TYPE, "%s is %d, which is none of EPX", name, datatype);
}

int epx_check_row_type(enum epx_verb verb, const struct epx_row_type *type, int64_t *bytes)
{
    int element = epx_datatype_bytes(type->datatype);

    if (!element)
        return fail_type(type->datatype_name, type->datatype);
    EPX_FAIL_IF(epx_verb_computes(verb) && !epx_datatype_adds(type->datatype), EPX_ERR_TYPE,
                "%s cannot be added, want EPX_FLOAT16, EPX_BFLOAT16, EPX_FLOAT32 or EPX_FLOAT64",
                epx_datatype_name(type->datatype));
    EPX_FAIL_IF(type->count < 0, EPX_ERR_COUNT, "%s is %d", type->count_name, type->count);
    *bytes = (int64_t)type->count * element;
    return EPX_SUCCESS;
}

int epx_check_row_bytes(int64_t max_row_bytes, struct epx_call *call)
{
    call->row_bytes = 0;
    for (int f = 0; f < call->fields.num; f++)
        call->row_bytes += call->fields.at[f].bytes;
    EPX_FAIL_IF(max_row_bytes && call->row_bytes > max_row_bytes, EPX_ERR_COUNT,
                "a row of %lld bytes, max_row_bytes is %lld", (long long)call->row_bytes,
                (long long)max_row_bytes);
    return EPX_SUCCESS;
}

int epx_check_rows(int count, EPX_Datatype datatype, int64_t max_row_bytes, struct epx_call *call)
{
    struct epx_row_type type = {"count", "datatype", count, datatype};

    EPX_TRY(epx_check_row_type(call->verb, &type, &call->fields.at[0].bytes));
    call->datatype = datatype;
    call->fields.num = 1;
    return epx_check_row_bytes(max_row_bytes, call);
}

/* Rows that a routing uses, on host memory once it is complete; -1 = not known. */
static int64_t known_rows(const struct epx_route *route)
{
    int64_t rows = -1;

    epx_lock(); /* a thread may progress a routing */
    if (route->plan && !epx_request_routes(route))
        rows = route->error ? 0 : *route->view.num_rows;
    epx_unlock();
    return rows;
}

int epx_check_routed(const struct epx_route *route, const EPX_Request *request,
                     struct epx_call *call)
{
    EPX_FAIL_IF(!request, EPX_ERR_ARG, "request is NULL");
    EPX_FAIL_IF(!route->routed, EPX_ERR_ROUTE, "no tokens were routed on the route yet");
    call->num_tokens = route->num_tokens;
    call->recv_capacity = route->routed_capacity;
    call->num_rows = call->recv_capacity ? known_rows(route) : 0;
    return EPX_SUCCESS;
}

/* Gives rows of no bytes that have no address one to compute with, which nobody reads. It may be
 * checked again, when a persistent request is started. */
static void take_any_address(struct epx_call *call)
{
    static _Alignas(max_align_t) char none;

    for (int f = 0; f < call->fields.num; f++) {
        struct epx_field *field = &call->fields.at[f];

        if (field->bytes)
            continue;
        field->in = field->in ? field->in : &none;
        field->out = field->out ? field->out : &none;
        call->forward_in = call->forward_in ? call->forward_in : &none;
    }
}

void epx_prepare(struct epx_request *request)
{
    if (!epx_transport_device_ops(request->comm))
        take_any_address(&request->call);
    epx_ground_prepare(request);
}

static int submit(struct epx_comm *comm, struct epx_route *route, const struct epx_call *call,
                  EPX_Request *request)
{
    struct epx_request *queued = epx_request_create(comm, route);

    EPX_FAIL_IF(!queued, EPX_ERR_NO_MEM, "no memory for a request");
    epx_request_set_call(queued, call);
    epx_prepare(queued);
    EPX_TRY(epx_request_submit(queued));
    *request = queued;
    return EPX_SUCCESS;
}

int epx_submit(struct epx_comm *comm, struct epx_route *route, const struct epx_call *call,
               EPX_Request *request)
{
    int rc;

    if (epx_transport_device_ops(comm)) /* preparations for a device may take a while */
        return submit(comm, route, call, request);
    epx_lock();
    rc = submit(comm, route, call, request);
    epx_unlock();
    return rc;
}

struct epx_buffer epx_rows_buffer(const char *name, const void *address, int64_t rows,
                                  const struct epx_call *call, int written)
{
    int element = epx_datatype_bytes(call->datatype);
    struct epx_buffer buffer = {name, address, rows, call->row_bytes, element, written, 1};

    return buffer;
}

struct epx_buffer epx_weights_buffer(const char *name, const float *address, int64_t rows,
                                     int64_t per_row, int written)
{
    const int element = sizeof(float);
    struct epx_buffer buffer = {name, address, rows, per_row * element, element, written, 0};

    return buffer;
}

/* A buffer at the slots, as far as its length is known. */
static struct epx_buffer at_slots(const struct epx_call *call, struct epx_buffer buffer)
{
    buffer.rows = call->num_rows;
    if (call->num_rows < 0) {
        buffer.rows = 1;
        buffer.row_bytes = buffer.row_bytes > 0;
    }
    return buffer;
}

struct epx_buffer epx_slots_buffer(const char *name, const void *address,
                                   const struct epx_call *call, int written)
{
    return at_slots(call, epx_rows_buffer(name, address, 0, call, written));
}

struct epx_buffer epx_slot_weights_buffer(const char *name, const float *address,
                                          const struct epx_call *call, int64_t per_row, int written)
{
    return at_slots(call, epx_weights_buffer(name, address, 0, per_row, written));
}

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
        counts_buffer("sendcounts", call->sendcounts, call->graph->destinations.num, 0),
        counts_buffer("sdispls", call->sdispls, call->graph->destinations.num, 0),
    };

    EPX_TRY(epx_check_buffers(comm, buffers, 2));
    for (int r = 0; r < call->graph->destinations.num; r++) {
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

int epx_check_exchange(int count, EPX_Datatype datatype, const EPX_Request *request,
                       struct epx_call *call)
{
    EPX_FAIL_IF(!request, EPX_ERR_ARG, "request is NULL");
    EPX_FAIL_IF((call->graph->destinations.num && (!call->sendcounts || !call->sdispls)) ||
                    (call->graph->sources.num && (!call->recvcounts || !call->rdispls)),
                EPX_ERR_ARG, "an array of counts or displacements is NULL");
    EPX_FAIL_IF(call->recv_capacity < 0, EPX_ERR_COUNT, "recv_capacity is %lld",
                (long long)call->recv_capacity);
    return epx_check_rows(count, datatype, 0, call);
}

int epx_check_exchange_buffers(const struct epx_comm *comm, const struct epx_call *call,
                               int64_t end_row)
{
    const int in = call->graph->sources.num, out = call->graph->destinations.num;
    const struct epx_buffer buffers[] = {
        epx_rows_buffer("sendbuf", call->fields.at[0].in, end_row, call, 0),
        counts_buffer("sendcounts", call->sendcounts, out, 0),
        counts_buffer("sdispls", call->sdispls, out, 0),
        epx_rows_buffer("recvbuf", call->fields.at[0].out, call->recv_capacity, call, 1),
        counts_buffer("recvcounts", call->recvcounts, in, 1),
        counts_buffer("rdispls", call->rdispls, in, 1),
    };

    return epx_check_buffers(comm, buffers, 6);
}

int epx_check_exchange_rows(const struct epx_comm *comm, const struct epx_call *call)
{
    int64_t end_row = 0;

    if (!epx_transport_device_ops(comm))
        EPX_TRY(check_counts(comm, call, &end_row));
    return epx_check_exchange_buffers(comm, call, end_row);
}

/* Kernels check the counts on device memory, and those that are kept were checked at first. */
int epx_checks_start(const struct epx_request *persistent)
{
    return !persistent->call.kept && !epx_transport_device_ops(persistent->comm);
}

int epx_check_start(const struct epx_request *persistent)
{
    return epx_check_exchange_rows(persistent->comm, &persistent->call);
}
