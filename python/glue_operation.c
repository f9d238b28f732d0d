/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_operation.c - the four operations for Python: one call checks all extents, sees to the
 * routing, calls EPX and completes.
 *
 * A routing is a value in Python, and a route of EPX has one at a time. So every operation brings
 * the ids and the key of its routing. If the route has another one, the operation routes again from
 * its ids, which gives the same slots. All ranks decide alike: the current key changes only at
 * collective calls, which all ranks make in the same order.
 */
#include "glue.h"

#include <stdio.h>
#include <string.h>

/* What Python calls the tensors of an operation. */
static const struct names {
    const char *operation, *input, *weights, *output, *out_weights;
} names[EPX_PYTHON_VERBS] = {
    {"dispatch", "x", "weights", "rows", "row_weights"},
    {"combine", "y", "row_weights", "out", "none"},
    {"dispatch's backward", "grad of rows", "grad of row_weights", "grad of x", "grad of weights"},
    {"combine's backward", "grad of out", "row_weights", "grad of y", "grad of row_weights"},
};

struct wanted {
    int64_t rows;
    int64_t columns;
    int64_t type;
};

/* Rows of tokens go to receive buffers, or come from there. */
static int goes_out(int64_t verb)
{
    return verb == EPX_PYTHON_DISPATCH || verb == EPX_PYTHON_COMBINE_BACKWARD;
}

static const char *type_name(int64_t type)
{
    static const char *const known[] = {"none",    "uint8",    "float8_e4m3fn", "float8_e5m2",
                                        "float16", "bfloat16", "float32",       "float64"};

    if (type == EPX_PYTHON_INT32 || type == EPX_PYTHON_INT64)
        return type == EPX_PYTHON_INT32 ? "int32" : "int64";
    return type >= 0 && type <= EPX_FLOAT64 ? known[type] : "unknown";
}

static int check(const struct epx_python_operation *op, const char *name,
                 const struct epx_python_matrix *matrix, struct wanted wanted)
{
    const char *operation = names[op->verb].operation;

    if (matrix->type != wanted.type)
        return epx_python_fail(EPX_ERR_TYPE, "%s: %s is of type %s, want %s", operation, name,
                               type_name(matrix->type), type_name(wanted.type));
    if (matrix->rows != wanted.rows || matrix->columns != wanted.columns)
        return epx_python_fail(EPX_ERR_COUNT, "%s: %s is [%lld, %lld], want [%lld, %lld]",
                               operation, name, (long long)matrix->rows, (long long)matrix->columns,
                               (long long)wanted.rows, (long long)wanted.columns);
    return EPX_SUCCESS;
}

static int check_if_any(const struct epx_python_operation *op, const char *name,
                        const struct epx_python_matrix *matrix, struct wanted wanted)
{
    return matrix->type == 0 ? EPX_SUCCESS : check(op, name, matrix, wanted);
}

static int check_input(const struct epx_python_operation *op, const struct epx_python_route *route)
{
    const struct epx_python_matrix *input = &op->input;
    const int64_t least = op->verb == EPX_PYTHON_DISPATCH ? EPX_BYTE : EPX_FLOAT16;
    struct wanted wanted = {op->ids.rows, route->top_k, EPX_PYTHON_INT64};

    EPX_PYTHON_TRY(check(op, "ids", &op->ids, wanted));
    if (op->capacity < 0 || op->capacity > route->view.capacity)
        return epx_python_fail(EPX_ERR_COUNT, "%s: capacity %lld, that of the route is %lld",
                               names[op->verb].operation, (long long)op->capacity,
                               (long long)route->view.capacity);
    if (input->type < least || input->type > EPX_FLOAT64)
        return epx_python_fail(EPX_ERR_TYPE, "%s: %s is of type %s, which cannot be %s",
                               names[op->verb].operation, names[op->verb].input,
                               type_name(input->type), least == EPX_BYTE ? "sent" : "added");
    if (input->columns < 0 || input->columns > INT32_MAX)
        return epx_python_fail(EPX_ERR_COUNT, "%s: %s has rows of %lld elements, at most %d",
                               names[op->verb].operation, names[op->verb].input,
                               (long long)input->columns, INT32_MAX);
    wanted.rows = goes_out(op->verb) ? op->ids.rows : op->capacity;
    wanted.columns = input->columns;
    wanted.type = input->type;
    return check(op, names[op->verb].input, input, wanted);
}

/* Weights of tokens are [T][K], those of rows [capacity] or, sent in rank-major, [capacity][K]. */
static int check_weights(const struct epx_python_operation *op,
                         const struct epx_python_route *route)
{
    const struct names *name = &names[op->verb];
    const int is_sent = op->verb == EPX_PYTHON_DISPATCH || op->verb == EPX_PYTHON_DISPATCH_BACKWARD;
    const int64_t columns = is_sent && route->layout == EPX_RANK_MAJOR ? route->top_k : 1;
    const struct wanted of_tokens = {op->ids.rows, route->top_k, EPX_FLOAT32};
    const struct wanted of_rows = {op->capacity, columns, EPX_FLOAT32};

    EPX_PYTHON_TRY(check_if_any(op, name->weights, &op->weights,
                                op->verb == EPX_PYTHON_DISPATCH ? of_tokens : of_rows));
    return check_if_any(op, name->out_weights, &op->out_weights,
                        op->verb == EPX_PYTHON_DISPATCH_BACKWARD ? of_tokens : of_rows);
}

static int check_extents(const struct epx_python_operation *op,
                         const struct epx_python_route *route)
{
    const struct wanted output = {goes_out(op->verb) ? op->capacity : op->ids.rows,
                                  op->input.columns, op->input.type};
    const struct wanted rows = {op->capacity, op->input.columns, op->input.type};

    EPX_PYTHON_TRY(check_input(op, route));
    EPX_PYTHON_TRY(check_weights(op, route));
    EPX_PYTHON_TRY(check_if_any(op, "y", &op->rows, rows));
    return check(op, names[op->verb].output, &op->output, output);
}

/* The routing that the route has is the operation's: it must have the operation's extents. */
static int check_current(const struct epx_python_operation *op,
                         const struct epx_python_route *route)
{
    if (op->ids.rows != route->num_tokens || op->capacity != route->capacity)
        return epx_python_fail(
            EPX_ERR_COUNT, "%s: %lld tokens and capacity %lld, the routing has %lld and %lld",
            names[op->verb].operation, (long long)op->ids.rows, (long long)op->capacity,
            (long long)route->num_tokens, (long long)route->capacity);
    return EPX_SUCCESS;
}

/* Routes the tokens if the route has another routing than that of the operation. */
static int settle(const struct epx_python_operation *op, struct epx_python_route *route,
                  EPX_Request *request)
{
    const int is_new = op->verb == EPX_PYTHON_DISPATCH;

    if (!is_new && *op->key == route->current)
        return check_current(op, route);
    if (op->ids.rows > INT32_MAX)
        return epx_python_fail(EPX_ERR_COUNT, "%lld tokens, at most %d", (long long)op->ids.rows,
                               INT32_MAX);
    EPX_PYTHON_TRY(epx_python_route_set_capacity((int)op->route, op->capacity));
    EPX_PYTHON_TRY(
        epx_python_check(route->owner, EPX_Route_tokens(op->ids.data, (int)op->ids.rows,
                                                        route->route, op->stream, request)));
    route->num_tokens = op->ids.rows;
    route->current = is_new ? ++route->last_key : *op->key;
    if (is_new)
        *op->key = route->current;
    return EPX_SUCCESS;
}

static int start(const struct epx_python_operation *op, EPX_Route route, EPX_Request *request)
{
    const int count = (int)op->input.columns;
    const EPX_Datatype type = (EPX_Datatype)op->input.type;

    switch (op->verb) {
    case EPX_PYTHON_DISPATCH:
        return EPX_Dispatch(op->input.data, op->weights.data, op->output.data, op->out_weights.data,
                            count, type, route, op->stream, request);
    case EPX_PYTHON_COMBINE:
        return EPX_Combine(op->input.data, op->weights.data, op->output.data, count, type, route,
                           op->stream, request);
    case EPX_PYTHON_DISPATCH_BACKWARD:
        return EPX_Dispatch_backward(op->input.data, op->weights.data, op->output.data,
                                     op->out_weights.data, count, type, route, op->stream, request);
    default:
        return EPX_Combine_backward(op->input.data, op->rows.data, op->weights.data,
                                    op->output.data, op->out_weights.data, count, type, route,
                                    op->stream, request);
    }
}

static int finish(const struct epx_python_route *route, EPX_Request *request, EPX_Stream stream)
{
    if (*request == EPX_REQUEST_NULL)
        return EPX_SUCCESS;
    return epx_python_check(route->owner, route->owner->on_device
                                              ? EPX_Wait_enqueue(request, stream)
                                              : EPX_Wait(request, MPI_STATUS_IGNORE));
}

static void copy_expert_offsets(const EPX_Route_view *view, int32_t *offsets)
{
    for (int i = 0; i <= view->num_local_experts; i++)
        offsets[i] = (int32_t)view->expert_offsets[i];
}

/* Without a capacity the rows of the ranks might have gone beyond num_rows. */
static void copy_rank_offsets(const EPX_Route_view *view, int num_ranks, int32_t *offsets)
{
    offsets[0] = 0;
    for (int i = 0; i < num_ranks; i++) {
        int64_t end = offsets[i] + (int64_t)view->rank_counts[i];

        offsets[i + 1] = (int32_t)(end < *view->num_rows ? end : *view->num_rows);
    }
}

/* The view shows the latest routing alone: a dispatch on host memory copies what Python wants. */
static void copy_view(const struct epx_python_operation *op, const struct epx_python_route *route)
{
    const EPX_Route_view *view = &route->view;
    const int64_t num_ids = *view->num_rows * route->top_k;

    if (op->counts) /* NULL where there are no experts */
        memcpy(op->counts, view->expert_counts,
               (size_t)view->num_local_experts * sizeof(*op->counts));
    if (view->expert_offsets)
        copy_expert_offsets(view, op->offsets);
    else
        copy_rank_offsets(view, route->owner->size, op->offsets);
    if (!view->row_expert_ids || !op->row_experts)
        return;
    memcpy(op->row_experts, view->row_expert_ids, (size_t)num_ids * sizeof(*op->row_experts));
    for (int64_t i = num_ids; i < op->capacity * route->top_k; i++)
        op->row_experts[i] = -1;
}

/* The routing and the operation are both called before either is waited for: a rank with a bad id
 * takes part in the operation too, and no other rank waits for it. */
int epx_python_run(const struct epx_python_operation *op)
{
    EPX_Request routing = EPX_REQUEST_NULL, request = EPX_REQUEST_NULL;
    struct epx_python_route *route;
    int rc, started;

    EPX_PYTHON_TRY(epx_python_route(op->route, &route));
    if (op->verb < 0 || op->verb >= EPX_PYTHON_VERBS)
        return epx_python_fail(EPX_ERR_ARG, "there is no operation %lld", (long long)op->verb);
    EPX_PYTHON_TRY(check_extents(op, route));
    EPX_PYTHON_TRY(settle(op, route, &routing));
    started = epx_python_check(route->owner, start(op, route->route, &request));
    rc = finish(route, &routing, op->stream);
    if (rc != EPX_SUCCESS)
        route->current = 0;
    if (rc == EPX_SUCCESS)
        rc = started;
    if (rc == EPX_SUCCESS)
        rc = finish(route, &request, op->stream);
    else if (request != EPX_REQUEST_NULL)
        EPX_Wait(&request, MPI_STATUS_IGNORE);
    if (rc == EPX_SUCCESS && op->verb == EPX_PYTHON_DISPATCH && op->offsets)
        copy_view(op, route);
    return rc;
}
