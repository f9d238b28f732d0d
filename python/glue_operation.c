/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_operation.c - the operations for Python: one call checks all extents, sees to the
 * routing, and calls EPX. glue_wait.c has how they end.
 *
 * A routing is a value in Python, and a route of EPX has one at a time. So every operation brings
 * the ids and the key of its routing. If the route has another one, the operation routes again from
 * its ids, which gives the same slots. A dispatch always routes, in one call with its rows, unless
 * it is one by a routing that there is. All ranks decide alike: the current key changes only at
 * collective calls, which all ranks make in the same order.
 *
 * What a stream captures runs when the graph is launched, and again at every launch, of which
 * nobody tells. So a routing of one capture is none of another's, and once a route was captured, no
 * operation outside of captures trusts what the route has.
 */
#include "glue.h"

#include <stdlib.h>

const size_t epx_python_operation_bytes = sizeof(struct epx_python_operation);

static _Thread_local int64_t unfinished;

/* Whether an operation has a routing of its own, and shows what that is. */
static int makes_routing(int64_t verb)
{
    return verb == EPX_PYTHON_DISPATCH || verb == EPX_PYTHON_ROUTE;
}

static int sends_rows(int64_t verb)
{
    return verb == EPX_PYTHON_DISPATCH || verb == EPX_PYTHON_DISPATCH_BY;
}

static int is_current(const struct epx_python_operation *op, const struct epx_python_route *route,
                      uint64_t capture)
{
    if (makes_routing(op->verb) || *op->key == 0 || *op->key != route->current)
        return 0; /* 0 is no routing's key */
    return capture == route->capture && (capture || !route->was_captured);
}

/* The arrays of rows that a dispatch sends: the tokens, and the fields beside them. */
struct lists {
    int num;
    const void *from[1 + EPX_PYTHON_FIELDS];
    void *to[1 + EPX_PYTHON_FIELDS];
    int counts[1 + EPX_PYTHON_FIELDS];
    EPX_Datatype types[1 + EPX_PYTHON_FIELDS];
};

static void add(struct lists *lists, const struct epx_python_matrix *from,
                const struct epx_python_matrix *to)
{
    lists->from[lists->num] = from->data;
    lists->to[lists->num] = to->data;
    lists->counts[lists->num] = (int)from->columns;
    lists->types[lists->num++] = epx_python_wire_type(from->type);
}

static struct lists lists_of(const struct epx_python_operation *op)
{
    struct lists lists = {0};

    add(&lists, &op->input, &op->output);
    for (int f = 0; f < EPX_PYTHON_FIELDS && op->fields[f].type; f++)
        add(&lists, &op->fields[f], &op->out_fields[f]);
    return lists;
}

/* A dispatch has its rows sent by the call that routes them, whose request is that of the
 * routing. */
static int route_and_dispatch(const struct epx_python_operation *op, EPX_Route route,
                              EPX_Request *request)
{
    const struct lists lists = lists_of(op);
    const int num_tokens = (int)op->ids.rows;

    if (lists.num == 1)
        return EPX_Route_dispatch(op->ids.data, num_tokens, op->input.data, op->weights.data,
                                  op->output.data, op->out_weights.data, lists.counts[0],
                                  lists.types[0], route, op->stream, request);
    return EPX_Route_dispatch_fields(op->ids.data, num_tokens, lists.num, lists.from, lists.to,
                                     lists.counts, lists.types, op->weights.data,
                                     op->out_weights.data, route, op->stream, request);
}

static int dispatch(const struct epx_python_operation *op, EPX_Route route, EPX_Request *request)
{
    const struct lists lists = lists_of(op);

    if (lists.num == 1)
        return EPX_Dispatch(op->input.data, op->weights.data, op->output.data, op->out_weights.data,
                            lists.counts[0], lists.types[0], route, op->stream, request);
    return EPX_Dispatch_fields(lists.num, lists.from, lists.to, lists.counts, lists.types,
                               op->weights.data, op->out_weights.data, route, op->stream, request);
}

/* NULL if an input is not given. torch has no address for a tensor without elements: any of the
 * route's memory space will do. */
static const void *address_of(const struct epx_python_matrix *matrix, EPX_Route route)
{
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;

    if (matrix->type == 0 || matrix->data)
        return matrix->data;
    EPX_Route_get_view(route, &view);
    return view.num_rows;
}

static int combine(const struct epx_python_operation *op, EPX_Route route, EPX_Request *request)
{
    const void *const biases[] = {op->fields[0].data, op->fields[1].data};
    const int num_biases = (op->fields[0].type != 0) + (op->fields[1].type != 0);

    return EPX_Combine_from(address_of(&op->input, route), address_of(&op->weights, route),
                            num_biases, biases, address_of(&op->fields[2], route), op->output.data,
                            (int)op->input.columns, (EPX_Datatype)op->input.type, route, op->stream,
                            request);
}

/* What the tensors of an operation are to show: nothing, unless it makes a routing. */
static struct epx_python_view view_of(const struct epx_python_operation *op)
{
    const struct epx_python_view view = {op->counts, op->offsets, op->row_experts, op->adds_up};
    const struct epx_python_view none = {0};

    return makes_routing(op->verb) ? view : none;
}

static int call_routing(const struct epx_python_operation *op, EPX_Route route,
                        EPX_Request *request)
{
    if (sends_rows(op->verb))
        return route_and_dispatch(op, route, request);
    return EPX_Route_tokens(op->ids.data, (int)op->ids.rows, route, op->stream, request);
}

static int route_tokens(const struct epx_python_operation *op, struct epx_python_route *route,
                        uint64_t capture, EPX_Request *request)
{
    const struct epx_python_view view = view_of(op);

    if (op->ids.rows > INT32_MAX)
        return epx_python_fail(EPX_ERR_COUNT, "%lld tokens, at most %d", (long long)op->ids.rows,
                               INT32_MAX);
    epx_python_settle_view(route, NULL);
    EPX_PYTHON_TRY(epx_python_route_set_capacity((int)op->route, op->capacity));
    if (route->owner->on_device) {
        EPX_PYTHON_TRY(epx_python_view_await(route, op->stream, capture));
        EPX_PYTHON_TRY(epx_python_view_set(route, &view));
    }
    EPX_PYTHON_TRY(epx_python_check(route->owner, call_routing(op, route->route, request)));
    route->num_tokens = op->ids.rows;
    route->routed_capacity = op->capacity;
    route->capture = capture;
    route->is_begun = 0;
    route->was_captured |= capture != 0;
    route->current = makes_routing(op->verb) ? ++route->last_key : *op->key;
    *op->key = route->current;
    return EPX_SUCCESS;
}

/* A dispatch by a routing that is on its way may be the first to ask what that shows: it waits
 * until that is there. */
static int await_view(const struct epx_python_operation *op, struct epx_python_route *route,
                      uint64_t capture)
{
    if (op->verb != EPX_PYTHON_DISPATCH_BY)
        return EPX_SUCCESS;
    if (route->owner->on_device)
        return epx_python_is_on_its_way(route) ? epx_python_view_await(route, op->stream, capture)
                                               : EPX_SUCCESS;
    epx_python_settle_view(route, NULL);
    return EPX_SUCCESS;
}

/* Routes the tokens if the route has another routing than that of the operation. */
static int settle(const struct epx_python_operation *op, struct epx_python_route *route,
                  EPX_Request *request)
{
    uint64_t capture = 0;

    if (route->owner->on_device) {
        EPX_PYTHON_TRY(epx_python_device_enter(route->owner->context));
        EPX_PYTHON_TRY(epx_python_device_capture(op->stream, &capture));
    }
    if (is_current(op, route, capture)) {
        EPX_PYTHON_TRY(epx_python_check_current(op, route));
        return await_view(op, route, capture);
    }
    return route_tokens(op, route, capture, request);
}

/* Calls the operation behind its routing, unless that took the rows along. */
static int start(const struct epx_python_operation *op, EPX_Route route, EPX_Request *request)
{
    const int count = (int)op->input.columns;
    const EPX_Datatype type = (EPX_Datatype)op->input.type;

    switch (op->verb) {
    case EPX_PYTHON_DISPATCH:
    case EPX_PYTHON_ROUTE: return EPX_SUCCESS;
    case EPX_PYTHON_DISPATCH_BY: return dispatch(op, route, request);
    case EPX_PYTHON_COMBINE: return combine(op, route, request);
    case EPX_PYTHON_DISPATCH_BACKWARD:
        return EPX_Dispatch_backward(address_of(&op->input, route), address_of(&op->weights, route),
                                     op->output.data, op->out_weights.data, count, type, route,
                                     op->stream, request);
    default:
        return EPX_Combine_backward(op->input.data, address_of(&op->rows, route),
                                    address_of(&op->weights, route), op->output.data,
                                    op->out_weights.data, count, type, route, op->stream, request);
    }
}

/* Where rows at slots may be too few the host learns how many the routing has. On device memory it
 * does not wait: EPX reads the rows that there are. */
static int check_slots(const struct epx_python_operation *op, struct epx_python_route *route,
                       struct epx_python_work *work)
{
    if (route->owner->on_device || !epx_python_has_few_slots(op))
        return EPX_SUCCESS;
    return epx_python_check_slots(op, epx_python_await_routing(route, work));
}

/* Before an operation begins: waits for the routing whose rows it asks for, at most for a slice of
 * time. */
static int await_rows(const struct epx_python_operation *op)
{
    struct epx_python_route *route;

    if (makes_routing(op->verb) || !epx_python_has_few_slots(op))
        return EPX_SUCCESS;
    EPX_PYTHON_TRY(epx_python_route(op->route, &route));
    if (route->owner->on_device || *op->key != route->current)
        return EPX_SUCCESS;
    return epx_python_routing_in_slice(route);
}

/* Has what the routing shows copied: on device memory by the stream, unless the routing itself
 * writes it; else when somebody waits. */
static int show(const struct epx_python_operation *op, struct epx_python_route *route,
                struct epx_python_work *work)
{
    const struct epx_python_view view = view_of(op);

    if (!view.offsets || route->told)
        return EPX_SUCCESS;
    if (route->owner->on_device) {
        work->copies = 1;
        return epx_python_view_enqueue(route, &view, op->stream);
    }
    work->view = view;
    route->unread = work;
    return EPX_SUCCESS;
}

/* The routing and the operation are both called before either is waited for: a rank with a bad id
 * takes part in the operation too, and no other rank waits for it. */
static int begin(const struct epx_python_operation *op, struct epx_python_work *work)
{
    struct epx_python_route *route;
    int shown, is_sent;

    EPX_PYTHON_TRY(epx_python_route(op->route, &route));
    if (op->verb < 0 || op->verb >= EPX_PYTHON_VERBS)
        return epx_python_fail(EPX_ERR_ARG, "there is no operation %lld", (long long)op->verb);
    EPX_PYTHON_TRY(epx_python_check_extents(op, route));
    work->route = op->route;
    work->comm = route->comm;
    EPX_PYTHON_TRY(settle(op, route, &work->routing));
    work->key = route->current;
    EPX_PYTHON_TRY(check_slots(op, route, work));
    shown = show(op, route, work);
    is_sent = sends_rows(op->verb) && work->routing != EPX_REQUEST_NULL;
    if (!is_sent)
        work->started = epx_python_check(route->owner, start(op, route->route, &work->request));
    if (work->started == EPX_SUCCESS)
        work->started = shown;
    if (work->started != EPX_SUCCESS && work->rc == EPX_SUCCESS)
        epx_python_message(work->message);
    return EPX_SUCCESS;
}

int epx_python_run(const struct epx_python_operation *op)
{
    struct epx_python_work work = {0};

    EPX_PYTHON_TRY(begin(op, &work));
    return epx_python_end(&work, op->stream);
}

/* The work moves from the stack to memory of its own; NULL without memory, or if its route was
 * freed meanwhile. */
static struct epx_python_work *keep(const struct epx_python_work *work)
{
    struct epx_python_route *route = epx_python_table_get(&epx_python_routes, work->route);
    struct epx_python_work *kept = malloc(sizeof(*kept));

    if (!kept || (!route && work->route >= 0)) {
        free(kept);
        return NULL;
    }
    if (route)
        pthread_mutex_lock(&route->reading);
    *kept = *work;
    if (route && route->unread == work)
        route->unread = kept;
    if (route)
        pthread_mutex_unlock(&route->reading);
    return kept;
}

/* Ends work that lies on the stack, or returns EPX_PYTHON_UNFINISHED: then epx_python_wait ends the
 * operation of the number that epx_python_unfinished tells. */
int epx_python_end_or_keep(struct epx_python_work *work, EPX_Stream stream)
{
    struct epx_python_work *kept;
    int rc;

    unfinished = 0;
    rc = epx_python_end_in_slice(work, stream);
    if (rc != EPX_PYTHON_UNFINISHED)
        return rc;
    kept = keep(work);
    if (!kept)
        return epx_python_end(work, stream);
    unfinished = epx_python_number(kept);
    return rc;
}

/* As epx_python_run, but may return EPX_PYTHON_UNFINISHED: where epx_python_unfinished tells no
 * number the operation has not begun, and this is to be called again. */
int epx_python_run_in_slices(const struct epx_python_operation *op)
{
    struct epx_python_work work = {0};

    unfinished = 0;
    EPX_PYTHON_TRY(await_rows(op));
    EPX_PYTHON_TRY(begin(op, &work));
    return epx_python_end_or_keep(&work, op->stream);
}

/* The operation that this thread began last, if it has not ended in that call. */
int64_t epx_python_unfinished(void)
{
    return unfinished;
}

/* Without a view there is nobody who waits for the routing alone, as epx_python_look would. */
static void note_begun(const struct epx_python_operation *op, const struct epx_python_work *work)
{
    struct epx_python_route *route = epx_python_table_get(&epx_python_routes, op->route);

    if (route && work->routing != EPX_REQUEST_NULL && !makes_routing(op->verb))
        route->is_begun = 1;
}

/* Another stream may wait for the work than the one that it begins on. */
static int begin_alone(const struct epx_python_operation *op, struct epx_python_work *work)
{
    struct epx_python_comm *comm;

    EPX_PYTHON_TRY(begin(op, work));
    note_begun(op, work);
    if (!work->copies || work->started != EPX_SUCCESS)
        return EPX_SUCCESS;
    work->started = epx_python_comm(work->comm, &comm);
    if (work->started == EPX_SUCCESS)
        work->started = epx_python_device_mark(comm->context, &work->copied, op->stream);
    if (work->started != EPX_SUCCESS)
        epx_python_message(work->message);
    return EPX_SUCCESS;
}

/* Returns EPX_PYTHON_UNFINISHED if it has not begun after a slice of time: call again. */
int epx_python_start(const struct epx_python_operation *op, int64_t *number)
{
    struct epx_python_work *work;
    int rc;

    unfinished = 0;
    EPX_PYTHON_TRY(await_rows(op));
    work = calloc(1, sizeof(*work));
    rc = work ? begin_alone(op, work)
              : epx_python_fail(EPX_ERR_NO_MEM, "no memory for an operation");

    if (rc == EPX_SUCCESS && work->started != EPX_SUCCESS)
        rc = epx_python_end(work, op->stream);
    if (rc != EPX_SUCCESS)
        epx_python_discard(work);
    else
        *number = unfinished = epx_python_number(work);
    return rc;
}
