/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_extents.c - whether the tensors of an operation have the types and sizes that its route
 * wants: EPX reads and writes so much and does not know where a tensor ends. */
#include "glue.h"

/* What Python calls the tensors of an operation. */
static const struct names {
    const char *operation, *input, *weights, *output, *out_weights;
} names[EPX_PYTHON_VERBS] = {
    {"dispatch", "x", "weights", "rows", "row_weights"},
    {"combine", "y", "row_weights", "out", "none"},
    {"dispatch's backward", "grad of rows", "grad of row_weights", "grad of x", "grad of weights"},
    {"combine's backward", "grad of out", "row_weights", "grad of y", "grad of row_weights"},
    {"route", "none", "none", "none", "none"},
    {"dispatch by a routing", "x", "weights", "rows", "row_weights"},
};

enum { ANY_ROWS = -1 };

struct wanted {
    int64_t rows; /* or ANY_ROWS: those at slots, which may be more than the routing has */
    int64_t columns;
    int64_t type;
};

/* Rows of tokens go to receive buffers, or come from there. */
static int goes_out(int64_t verb)
{
    return verb != EPX_PYTHON_COMBINE && verb != EPX_PYTHON_DISPATCH_BACKWARD;
}

static int is_dispatch(int64_t verb)
{
    return verb == EPX_PYTHON_DISPATCH || verb == EPX_PYTHON_DISPATCH_BY;
}

/* Integers are sent as floats of as many bytes: dispatch copies bits. */
EPX_Datatype epx_python_wire_type(int64_t type)
{
    if (type == EPX_PYTHON_INT32 || type == EPX_PYTHON_INT64)
        return type == EPX_PYTHON_INT32 ? EPX_FLOAT32 : EPX_FLOAT64;
    return (EPX_Datatype)type;
}

static int can_be_sent(int64_t type)
{
    const int64_t sent = epx_python_wire_type(type);

    return sent >= EPX_BYTE && sent <= EPX_FLOAT64;
}

const char *epx_python_type_name(int64_t type)
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
                               epx_python_type_name(matrix->type),
                               epx_python_type_name(wanted.type));
    if (wanted.rows == ANY_ROWS)
        wanted.rows = matrix->rows;
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

static int check_ids(const struct epx_python_operation *op, const struct epx_python_route *route)
{
    const struct wanted wanted = {op->ids.rows, route->top_k, EPX_PYTHON_INT64};

    EPX_PYTHON_TRY(check(op, "ids", &op->ids, wanted));
    if (op->capacity < 0 || op->capacity > route->view.capacity)
        return epx_python_fail(EPX_ERR_COUNT, "%s: capacity %lld, that of the route is %lld",
                               names[op->verb].operation, (long long)op->capacity,
                               (long long)route->view.capacity);
    return EPX_SUCCESS;
}

static int check_input(const struct epx_python_operation *op)
{
    const struct epx_python_matrix *input = &op->input;
    const int is_sent = is_dispatch(op->verb);
    const struct wanted wanted = {goes_out(op->verb) ? op->ids.rows : ANY_ROWS, input->columns,
                                  input->type};

    if (is_sent ? !can_be_sent(input->type)
                : input->type < EPX_FLOAT16 || input->type > EPX_FLOAT64)
        return epx_python_fail(EPX_ERR_TYPE, "%s: %s is of type %s, which cannot be %s",
                               names[op->verb].operation, names[op->verb].input,
                               epx_python_type_name(input->type), is_sent ? "sent" : "added");
    if (input->columns < 0 || input->columns > INT32_MAX)
        return epx_python_fail(EPX_ERR_COUNT, "%s: %s has rows of %lld elements, at most %d",
                               names[op->verb].operation, names[op->verb].input,
                               (long long)input->columns, INT32_MAX);
    return check(op, names[op->verb].input, input, wanted);
}

/* Rows at slots are as many as the capacity where a dispatch writes them. */
static int64_t rows_at_slots(const struct epx_python_operation *op)
{
    return is_dispatch(op->verb) ? op->capacity : ANY_ROWS;
}

/* Weights of tokens are [T][K], those of rows [rows] or, sent in rank-major, [rows][K]. */
static int check_weights(const struct epx_python_operation *op,
                         const struct epx_python_route *route)
{
    const struct names *name = &names[op->verb];
    const int is_sent = is_dispatch(op->verb) || op->verb == EPX_PYTHON_DISPATCH_BACKWARD;
    const int64_t columns = is_sent && route->layout == EPX_RANK_MAJOR ? route->top_k : 1;
    const struct wanted of_tokens = {op->ids.rows, route->top_k, EPX_FLOAT32};
    const struct wanted of_rows = {rows_at_slots(op), columns, EPX_FLOAT32};

    EPX_PYTHON_TRY(
        check_if_any(op, name->weights, &op->weights, is_dispatch(op->verb) ? of_tokens : of_rows));
    return check_if_any(op, name->out_weights, &op->out_weights,
                        op->verb == EPX_PYTHON_DISPATCH_BACKWARD ? of_tokens : of_rows);
}

/* A field has a row of any type for each token. */
static int check_field(const struct epx_python_operation *op, int f)
{
    static const char *const from[] = {"scales", "scales[1]", "scales[2]"};
    static const char *const to[] = {"row_scales", "row_scales[1]", "row_scales[2]"};
    const struct epx_python_matrix *field = &op->fields[f];
    const struct wanted of_tokens = {op->ids.rows, field->columns, field->type};
    const struct wanted of_rows = {op->capacity, field->columns, field->type};

    if (field->type == 0)
        return EPX_SUCCESS;
    if (!is_dispatch(op->verb) || !can_be_sent(field->type))
        return epx_python_fail(EPX_ERR_TYPE, "%s: %s are of type %s, which cannot be sent",
                               names[op->verb].operation, from[f],
                               epx_python_type_name(field->type));
    if (field->columns < 0 || field->columns > INT32_MAX)
        return epx_python_fail(EPX_ERR_COUNT, "%s: %s has rows of %lld elements",
                               names[op->verb].operation, from[f], (long long)field->columns);
    EPX_PYTHON_TRY(check(op, from[f], field, of_tokens));
    return check(op, to[f], &op->out_fields[f], of_rows);
}

/* A combine starts from biases, and may have weights of tokens. */
static int check_home(const struct epx_python_operation *op, const struct epx_python_route *route)
{
    const struct wanted bias = {op->ids.rows, op->input.columns, op->input.type};
    const struct wanted weights = {op->ids.rows, route->top_k, EPX_FLOAT32};

    EPX_PYTHON_TRY(check_if_any(op, "bias", &op->fields[0], bias));
    EPX_PYTHON_TRY(check_if_any(op, "bias[1]", &op->fields[1], bias));
    return check_if_any(op, "token_weights", &op->fields[2], weights);
}

/* A tensor of an operation that has a row or a weight at each slot; a dispatch lists none. */
struct at_slots {
    const char *name;
    const struct epx_python_matrix *matrix;
    int is_written;
};

enum { MOST_AT_SLOTS = 4 };

static int list_at_slots(const struct epx_python_operation *op, struct at_slots list[MOST_AT_SLOTS])
{
    const struct names *name = &names[op->verb];
    const int is_backward = op->verb == EPX_PYTHON_COMBINE_BACKWARD;
    const struct at_slots all[] = {
        {is_backward ? "y" : name->input, is_backward ? &op->rows : &op->input, 0},
        {name->weights, &op->weights, 0},
        {name->output, &op->output, 1},
        {name->out_weights, &op->out_weights, 1},
    };
    const int num_given = is_backward ? MOST_AT_SLOTS : 2;
    int num = 0;

    if (is_dispatch(op->verb) || op->verb == EPX_PYTHON_ROUTE)
        return 0;
    for (int i = 0; i < num_given; i++)
        if (all[i].matrix->type)
            list[num++] = all[i];
    return num;
}

static int check_at_slots(const struct epx_python_operation *op, int64_t num_rows, int only_written)
{
    struct at_slots list[MOST_AT_SLOTS];
    const int num = list_at_slots(op, list);

    for (int i = 0; i < num; i++)
        if (list[i].matrix->rows < num_rows && (list[i].is_written || !only_written))
            return epx_python_fail(EPX_ERR_COUNT, "%s: %s has %lld rows, want at least %lld",
                                   names[op->verb].operation, list[i].name,
                                   (long long)list[i].matrix->rows, (long long)num_rows);
    return EPX_SUCCESS;
}

/* Slabs have all rows, and a route that zeroes unused rows writes them all: that many are needed
 * whatever the routing is. */
static int check_known_slots(const struct epx_python_operation *op,
                             const struct epx_python_route *route)
{
    const int has_slabs = route->layout == EPX_EXPERT_SLAB;

    return check_at_slots(op, has_slabs || route->zero_unused ? op->capacity : 0, !has_slabs);
}

int epx_python_has_few_slots(const struct epx_python_operation *op)
{
    struct at_slots list[MOST_AT_SLOTS];
    const int num = list_at_slots(op, list);

    for (int i = 0; i < num; i++)
        if (list[i].matrix->rows < op->capacity)
            return 1;
    return 0;
}

int epx_python_check_slots(const struct epx_python_operation *op, int64_t num_rows)
{
    return check_at_slots(op, num_rows, 0);
}

int epx_python_check_extents(const struct epx_python_operation *op,
                             const struct epx_python_route *route)
{
    const struct wanted output = {goes_out(op->verb) ? rows_at_slots(op) : op->ids.rows,
                                  op->input.columns, op->input.type};
    const struct wanted rows = {ANY_ROWS, op->input.columns, op->input.type};

    EPX_PYTHON_TRY(check_ids(op, route));
    if (op->verb == EPX_PYTHON_ROUTE)
        return EPX_SUCCESS;
    EPX_PYTHON_TRY(check_input(op));
    EPX_PYTHON_TRY(check_weights(op, route));
    EPX_PYTHON_TRY(check_if_any(op, "y", &op->rows, rows));
    if (op->verb == EPX_PYTHON_COMBINE)
        EPX_PYTHON_TRY(check_home(op, route));
    for (int f = 0; f < EPX_PYTHON_FIELDS && op->verb != EPX_PYTHON_COMBINE; f++)
        EPX_PYTHON_TRY(check_field(op, f));
    EPX_PYTHON_TRY(check(op, names[op->verb].output, &op->output, output));
    return check_known_slots(op, route);
}

/* The routing that the route has is the operation's: it must have the operation's extents. */
int epx_python_check_current(const struct epx_python_operation *op,
                             const struct epx_python_route *route)
{
    if (op->ids.rows != route->num_tokens || op->capacity != route->routed_capacity)
        return epx_python_fail(
            EPX_ERR_COUNT, "%s: %lld tokens and capacity %lld, the routing has %lld and %lld",
            names[op->verb].operation, (long long)op->ids.rows, (long long)op->capacity,
            (long long)route->num_tokens, (long long)route->routed_capacity);
    return EPX_SUCCESS;
}
