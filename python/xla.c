/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xla.c - the four operations as handlers of XLA's foreign function interface. A handler fills a
 * struct epx_python_operation from its call frame and runs it; jax.py makes the calls.
 *
 * Which calls route again. On host memory the key of a routing is a value of the program, written
 * by dispatch and read by the others: the rule of glue_operation.c holds. On a device the host
 * cannot read that value when it calls a handler, and what the handlers saw last tells nothing: XLA
 * captures a call into a CUDA graph by calling its handler once, may capture one call again without
 * the others, and replays graphs, without any handler, between calls that are not captured. Only a
 * call that routes by itself is right in all of these. So on a device every combine and every
 * backward routes again.
 *
 * Order. All ranks must run the operations in one order. XLA runs calls that do not depend on each
 * other in an order of its own, on the host in several threads. So _jax_order.py makes each call of
 * a program depend on the one before it. Two programs in two threads may still meet here, and the
 * second is an error.
 */
#include "glue.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xla/ffi/api/c_api.h>

/* Arguments and results as _jax_ops.py has them; a missing one is of type PRED. Only a dispatch has
 * scales and the results from KEY_MADE on. A tie and a token, which hold no data and make order,
 * stand behind the arguments and behind the results where there are several ranks. */
enum { INPUT, IDS, WEIGHTS, KEY, ROWS, SCALES, NUM_ARGS };
enum { OUTPUT, OUT_WEIGHTS, KEY_MADE, INFO, ROW_EXPERTS, OUT_SCALES, NUM_RESULTS };
enum { NUM_ORDER = 2 };
enum { CAPACITY, ROUTE, NUM_ATTRS }; /* by their names, as XLA sorts them */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of is_in_xla and last_key */
static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static int64_t last_key;

static int64_t type_of(const XLA_FFI_Buffer *buffer)
{
    switch ((int)buffer->dtype) {
    case XLA_FFI_DataType_PRED: return 0;
    case XLA_FFI_DataType_U8: return EPX_BYTE;
    case XLA_FFI_DataType_F8E4M3FN: return EPX_FLOAT8_E4M3;
    case XLA_FFI_DataType_F8E5M2: return EPX_FLOAT8_E5M2;
    case XLA_FFI_DataType_F16: return EPX_FLOAT16;
    case XLA_FFI_DataType_BF16: return EPX_BFLOAT16;
    case XLA_FFI_DataType_F32: return EPX_FLOAT32;
    case XLA_FFI_DataType_F64: return EPX_FLOAT64;
    case XLA_FFI_DataType_S32: return EPX_PYTHON_INT32;
    case XLA_FFI_DataType_S64: return EPX_PYTHON_INT64;
    default: return -1;
    }
}

static struct epx_python_matrix matrix_of(void *from)
{
    const XLA_FFI_Buffer *buffer = from;
    struct epx_python_matrix matrix = {NULL, 0, 0, type_of(buffer)};

    if (matrix.type == 0)
        return matrix;
    matrix.data = buffer->data;
    matrix.rows = buffer->rank > 0 ? buffer->dims[0] : 1;
    matrix.columns = buffer->rank > 1 ? buffer->dims[1] : 1;
    return matrix;
}

/* Ids are [T, K] of 64 bits, or [T, K, 2] of 32: the words of 64 in little-endian order. */
static struct epx_python_matrix ids_of(void *from)
{
    const XLA_FFI_Buffer *buffer = from;
    struct epx_python_matrix matrix = matrix_of(from);

    if (matrix.type == EPX_PYTHON_INT32 && buffer->rank == 3 && buffer->dims[2] == 2)
        matrix.type = EPX_PYTHON_INT64;
    return matrix;
}

static void *data_of(void *from)
{
    return ((const XLA_FFI_Buffer *)from)->data;
}

static int fill(const XLA_FFI_CallFrame *frame, int verb, struct epx_python_operation *op)
{
    const int is_dispatch = verb == EPX_PYTHON_DISPATCH;
    const int num_args = is_dispatch ? NUM_ARGS : SCALES;
    const int num_results = is_dispatch ? NUM_RESULTS : KEY_MADE;
    const int num_order = frame->args.size > num_args ? NUM_ORDER : 0;
    void **args = frame->args.args, **rets = frame->rets.rets;

    if (frame->args.size != num_args + num_order || frame->rets.size != num_results + num_order ||
        frame->attrs.size != NUM_ATTRS || frame->attrs.types[CAPACITY] != XLA_FFI_AttrType_SCALAR ||
        frame->attrs.types[ROUTE] != XLA_FFI_AttrType_SCALAR)
        return epx_python_fail(EPX_ERR_INTERN, "%lld arguments, %lld results and %lld attributes",
                               (long long)frame->args.size, (long long)frame->rets.size,
                               (long long)frame->attrs.size);
    op->verb = verb;
    op->route = *(const int32_t *)((const XLA_FFI_Scalar *)frame->attrs.attrs[ROUTE])->value;
    op->capacity = *(const int64_t *)((const XLA_FFI_Scalar *)frame->attrs.attrs[CAPACITY])->value;
    op->input = matrix_of(args[INPUT]);
    op->ids = ids_of(args[IDS]);
    op->weights = matrix_of(args[WEIGHTS]);
    op->rows = matrix_of(args[ROWS]);
    op->output = matrix_of(rets[OUTPUT]);
    op->out_weights = matrix_of(rets[OUT_WEIGHTS]);
    if (is_dispatch) {
        op->fields[0] = matrix_of(args[SCALES]);
        op->out_fields[0] = matrix_of(rets[OUT_SCALES]);
    }
    return EPX_SUCCESS;
}

/* What a dispatch shows: counts of the experts and, behind them, offsets. */
static void show(const XLA_FFI_CallFrame *frame, const struct epx_python_route *route,
                 struct epx_python_operation *op)
{
    if (op->verb != EPX_PYTHON_DISPATCH)
        return;
    op->counts = data_of(frame->rets.rets[INFO]);
    op->offsets = op->counts + route->view.num_local_experts;
    op->row_experts = data_of(frame->rets.rets[ROW_EXPERTS]);
}

/* The error of XLA that is nearest; its text begins with the name of EPX's. */
static const struct {
    const char *name;
    XLA_FFI_Error_Code code;
} errors[] = {
    [EPX_ERR_ARG] = {"ARG", XLA_FFI_Error_Code_INVALID_ARGUMENT},
    [EPX_ERR_COMM] = {"COMM", XLA_FFI_Error_Code_FAILED_PRECONDITION},
    [EPX_ERR_ROUTE] = {"ROUTE", XLA_FFI_Error_Code_FAILED_PRECONDITION},
    [EPX_ERR_REQUEST] = {"REQUEST", XLA_FFI_Error_Code_FAILED_PRECONDITION},
    [EPX_ERR_BUFFER] = {"BUFFER", XLA_FFI_Error_Code_INVALID_ARGUMENT},
    [EPX_ERR_COUNT] = {"COUNT", XLA_FFI_Error_Code_INVALID_ARGUMENT},
    [EPX_ERR_TYPE] = {"TYPE", XLA_FFI_Error_Code_INVALID_ARGUMENT},
    [EPX_ERR_INFO] = {"INFO", XLA_FFI_Error_Code_INVALID_ARGUMENT},
    [EPX_ERR_TRUNCATE] = {"TRUNCATE", XLA_FFI_Error_Code_OUT_OF_RANGE},
    [EPX_ERR_PENDING] = {"PENDING", XLA_FFI_Error_Code_FAILED_PRECONDITION},
    [EPX_ERR_TIMEOUT] = {"TIMEOUT", XLA_FFI_Error_Code_DEADLINE_EXCEEDED},
    [EPX_ERR_NO_MEM] = {"NO_MEM", XLA_FFI_Error_Code_RESOURCE_EXHAUSTED},
    [EPX_ERR_TRANSPORT] = {"TRANSPORT", XLA_FFI_Error_Code_UNAVAILABLE},
    [EPX_ERR_UNSUPPORTED] = {"UNSUPPORTED", XLA_FFI_Error_Code_UNIMPLEMENTED},
    [EPX_ERR_NOT_INITIALIZED] = {"NOT_INITIALIZED", XLA_FFI_Error_Code_FAILED_PRECONDITION},
    [EPX_ERR_MPI] = {"MPI", XLA_FFI_Error_Code_INTERNAL},
    [EPX_ERR_CUDA] = {"CUDA", XLA_FFI_Error_Code_INTERNAL},
    [EPX_ERR_INTERN] = {"INTERN", XLA_FFI_Error_Code_INTERNAL},
};

static XLA_FFI_Error *error_of(const XLA_FFI_CallFrame *frame, int code)
{
    const int known =
        code > 0 && code <= EPX_ERR_INTERN && errors[code].name ? code : EPX_ERR_INTERN;
    char text[EPX_MAX_ERROR_STRING], message[EPX_MAX_ERROR_STRING + 64];
    XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, message,
                                      errors[known].code};

    if (code == EPX_SUCCESS)
        return NULL;
    epx_python_message(text);
    snprintf(message, sizeof(message), "EPX_ERR_%s: %s", errors[known].name, text);
    return frame->api->XLA_FFI_Error_Create(&args);
}

/* XLA asks for this once when it registers a handler. */
static int is_query(const XLA_FFI_CallFrame *frame, int on_device)
{
    const XLA_FFI_Metadata_Extension *extension = (const void *)frame->extension_start;
    XLA_FFI_Metadata *metadata;

    if (!extension || extension->extension_base.type != XLA_FFI_Extension_Metadata)
        return 0;
    metadata = extension->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = on_device ? XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE : 0;
    return 1;
}

/* The route, if its communicator's memory is where the handler's arrays are. */
static int find_route(int64_t number, int on_device, struct epx_python_route **route)
{
    EPX_PYTHON_TRY(epx_python_route(number, route));
    if (!(*route)->owner->on_device != !on_device)
        return epx_python_fail(EPX_ERR_BUFFER, "arrays on the %s, a communicator for %s memory",
                               on_device ? "GPU" : "host", on_device ? "host" : "GPU");
    return EPX_SUCCESS;
}

/* A key that no routing has: an operation with it routes again. */
static int64_t fresh_key(void)
{
    int64_t key;

    pthread_mutex_lock(&mutex);
    key = --last_key;
    pthread_mutex_unlock(&mutex);
    return key;
}

/* A rank alone needs no order, but one call at a time. */
static int enter(struct epx_python_comm *comm)
{
    int was_in_xla;

    if (comm->size == 1) {
        pthread_mutex_lock(&alone);
        return EPX_SUCCESS;
    }
    pthread_mutex_lock(&mutex);
    was_in_xla = comm->is_in_xla;
    comm->is_in_xla = 1;
    pthread_mutex_unlock(&mutex);
    if (was_in_xla)
        return epx_python_fail(EPX_ERR_PENDING,
                               "two operations of one communicator at a time: run programs that "
                               "have some in one thread, or give each thread a communicator");
    return EPX_SUCCESS;
}

static void leave(struct epx_python_comm *comm)
{
    if (comm->size == 1) {
        pthread_mutex_unlock(&alone);
        return;
    }
    pthread_mutex_lock(&mutex);
    comm->is_in_xla = 0;
    pthread_mutex_unlock(&mutex);
}

static int run_on_host(const XLA_FFI_CallFrame *frame, struct epx_python_operation *op)
{
    const int is_dispatch = op->verb == EPX_PYTHON_DISPATCH;
    struct epx_python_route *route;
    int64_t key = 0;
    int rc;

    EPX_PYTHON_TRY(find_route(op->route, 0, &route));
    EPX_PYTHON_TRY(enter(route->owner));
    if (!is_dispatch)
        memcpy(&key, data_of(frame->args.args[KEY]), sizeof(key));
    op->key = &key;
    show(frame, route, op);
    rc = epx_python_run(op);
    if (is_dispatch)
        memcpy(data_of(frame->rets.rets[KEY_MADE]), &key, sizeof(key));
    leave(route->owner);
    return rc;
}

static int run_on_device(const XLA_FFI_CallFrame *frame, struct epx_python_operation *op)
{
    struct epx_python_route *route;
    int64_t key = fresh_key();

    EPX_PYTHON_TRY(find_route(op->route, 1, &route));
    op->key = &key;
    show(frame, route, op);
    return epx_python_run(op);
}

static XLA_FFI_Error *handle(const XLA_FFI_CallFrame *frame, int verb, int on_device)
{
    XLA_FFI_Stream_Get_Args stream = {XLA_FFI_Stream_Get_Args_STRUCT_SIZE, NULL, frame->ctx, NULL};
    struct epx_python_operation op;
    XLA_FFI_Error *error;
    int rc;

    if (is_query(frame, on_device))
        return NULL;
    error = on_device ? frame->api->XLA_FFI_Stream_Get(&stream) : NULL;
    if (error)
        return error;
    memset(&op, 0, sizeof(op));
    op.stream = stream.stream;
    rc = fill(frame, verb, &op);
    if (rc == EPX_SUCCESS)
        rc = on_device ? run_on_device(frame, &op) : run_on_host(frame, &op);
    return error_of(frame, rc);
}

#define HANDLERS(name, verb)                                                                       \
    XLA_FFI_Handler epx_python_xla_##name, epx_python_xla_##name##_cuda;                           \
    XLA_FFI_Error *epx_python_xla_##name(XLA_FFI_CallFrame *frame)                                 \
    {                                                                                              \
        return handle(frame, verb, 0);                                                             \
    }                                                                                              \
    XLA_FFI_Error *epx_python_xla_##name##_cuda(XLA_FFI_CallFrame *frame)                          \
    {                                                                                              \
        return handle(frame, verb, 1);                                                             \
    }

HANDLERS(dispatch, EPX_PYTHON_DISPATCH)
HANDLERS(combine, EPX_PYTHON_COMBINE)
HANDLERS(dispatch_backward, EPX_PYTHON_DISPATCH_BACKWARD)
HANDLERS(combine_backward, EPX_PYTHON_COMBINE_BACKWARD)
