/* SPDX-License-Identifier: BSD-3-Clause */
/* operation.c - dispatch, combine and the backwards, compared with the reference. */
#include "support/operation.h"

#include <stdio.h>
#include <string.h>

#include "support/space.h"
#include "support/suite.h"

static const char *const verb_names[] = {"dispatch", "combine", "dispatch_backward",
                                         "combine_backward"};

static void fill_rows(struct buffer *buffer, const struct data *data, int64_t rows)
{
    size_t bytes = data_row_bytes(data);

    for (int64_t row = 0; row < rows; row++)
        data_row(data, suite_rank, row, (char *)buffer->data + (size_t)row * bytes);
    buffer_freeze(buffer);
}

static void fill_weights(struct buffer *buffer, uint64_t seed, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ((float *)buffer->data)[i] = data_weight(seed, suite_rank, i);
    buffer_freeze(buffer);
}

/* Weights at home, [T][K], and at the expert's rank: one a row, K a row in dispatch rank-major. */
static int64_t weights_at_home(const struct operation *op)
{
    const struct ref *ref = op->routing->ref;

    return (int64_t)ref->in.tokens[suite_rank] * ref->in.top_k;
}

static int64_t weights_at_experts(const struct operation *op, int64_t rows)
{
    const struct ref *ref = op->routing->ref;
    int dispatched = op->verb == DISPATCH || op->verb == DISPATCH_BACKWARD;
    int wide = dispatched && ref->in.layout == EPX_RANK_MAJOR;

    return rows * (wide ? ref->in.top_k : 1);
}

/* Rows at the experts that the verb reads, or writes. */
static int64_t rows_at_experts(const struct operation *op, int written)
{
    const struct ref_rank *at = &op->routing->ref->rank[suite_rank];
    int grows = written && op->routing->layer->s.zero_unused;

    return op->verb != DISPATCH && op->routing->layer->s.tight && !grows ? at->num_rows
                                                                         : at->capacity;
}

/* Whether the home rank gives the weights. */
static int weighs_at_home(const struct operation *op)
{
    return op->verb == DISPATCH || (op->verb == COMBINE && op->routing->layer->s.token_weighted);
}

static int starts_at_home(enum verb verb)
{
    return verb == DISPATCH || verb == COMBINE_BACKWARD;
}

static int has_out_weights(const struct operation *op)
{
    if (op->verb == COMBINE)
        return 0;
    if (op->verb == DISPATCH)
        return (int)((op->weight_seed + (uint64_t)suite_rank) % 3) != 0;
    return op->verb == COMBINE_BACKWARD || !op->routing->layer->s.weightless;
}

static void make_inputs(struct operation *op)
{
    const struct layer *layer = op->routing->layer;
    const struct ref *ref = op->routing->ref;
    int64_t at_experts = rows_at_experts(op, 0), tokens = ref->in.tokens[suite_rank];
    int64_t rows = starts_at_home(op->verb) ? tokens : at_experts;
    int64_t weights = weighs_at_home(op) ? weights_at_home(op) : weights_at_experts(op, at_experts);
    size_t bytes = scenario_row_bytes(&layer->s), element = data_size(layer->s.datatype);

    buffer_create(&op->in, (size_t)rows * bytes, element,
                  op->verb == COMBINE ? layer->s.memory : MEMORY_MALLOC, layer->comm);
    fill_rows(&op->in, &op->in_data, rows);
    if (op->verb == COMBINE_BACKWARD) {
        buffer_create(&op->in2, (size_t)at_experts * bytes, element, MEMORY_MALLOC, layer->comm);
        fill_rows(&op->in2, &op->in2_data, at_experts);
    }
    for (int b = 0; op->verb == COMBINE && b < layer->s.biases; b++) {
        buffer_create(&op->biases[b], (size_t)tokens * bytes, element, MEMORY_MALLOC, layer->comm);
        fill_rows(&op->biases[b], &op->bias_data[b], tokens);
    }
    if (layer->s.weightless)
        return;
    buffer_create(&op->weights, (size_t)weights * sizeof(float), sizeof(float), MEMORY_MALLOC,
                  layer->comm);
    fill_weights(&op->weights, op->weight_seed, weights);
}

static void make_outputs(struct operation *op)
{
    const struct layer *layer = op->routing->layer;
    const struct ref *ref = op->routing->ref;
    int home = !starts_at_home(op->verb);
    int64_t rows = home ? ref->in.tokens[suite_rank] : rows_at_experts(op, 1);
    int64_t weights = home ? weights_at_home(op) : weights_at_experts(op, rows);

    buffer_create(&op->out, (size_t)rows * scenario_row_bytes(&layer->s),
                  data_size(layer->s.datatype), layer->s.memory, layer->comm);
    if (has_out_weights(op))
        buffer_create(&op->out_weights, (size_t)weights * sizeof(float), sizeof(float),
                      MEMORY_MALLOC, layer->comm);
}

static void expect_rows(struct operation *op, const uint64_t *seed)
{
    const struct ref *ref = op->routing->ref;
    const struct scenario *s = &op->routing->layer->s;
    const struct ref_home home = {s->biases, s->token_weighted, op->bias_data};
    float *weights = op->out_weights.expected;

    switch (op->verb) {
    case DISPATCH:
        ref_dispatch(ref, suite_rank, &op->in_data, seed, op->out.expected, weights);
        break;
    case COMBINE:
        ref_combine_from(ref, suite_rank, &op->in_data, seed, &home, op->out.expected);
        break;
    case DISPATCH_BACKWARD:
        ref_combine(ref, suite_rank, &op->in_data, NULL, op->out.expected);
        if (weights)
            ref_grad_weights(ref, suite_rank, *seed, weights);
        break;
    default:
        ref_combine_backward(ref, suite_rank, &op->in_data, seed, op->out.expected);
        if (weights)
            ref_grad_slot_weights(ref, suite_rank, &op->in_data, &op->in2_data, weights);
    }
}

/* EPX_Combine where that is enough. */
static int call_combine(struct operation *op, const void *in, void *out)
{
    const struct layer *layer = op->routing->layer;
    const struct scenario *s = &layer->s;
    const void *biases[EPX_MAX_BIASES];
    const float *weights = op->weights.address;

    for (int b = 0; b < EPX_MAX_BIASES; b++)
        biases[b] = op->biases[b].bytes ? op->biases[b].address : NULL;
    if (!s->biases && !s->token_weighted)
        return EPX_Combine(in, weights, out, s->count, s->datatype, layer->route, layer->stream,
                           &op->request);
    if (!s->token_weighted)
        return EPX_Combine_from(in, weights, s->biases, biases, NULL, out, s->count, s->datatype,
                                layer->route, layer->stream, &op->request);
    return EPX_Combine_from(in, NULL, s->biases, s->biases ? biases : NULL, weights, out, s->count,
                            s->datatype, layer->route, layer->stream, &op->request);
}

/* Whether no rows have an address: on device memory the host does not know that there are none. */
static int keeps_address(const struct operation *op)
{
    return space_is_device() && op->routing->layer->s.tight;
}

int operation_call(struct operation *op)
{
    const struct scenario *s = &op->routing->layer->s;
    EPX_Route route = op->routing->layer->route;
    const int kept = keeps_address(op);
    const void *in = op->in.bytes || kept ? op->in.address : NULL;
    void *out = op->out.bytes || kept ? op->out.address : NULL;

    switch (op->verb) {
    case DISPATCH:
        return EPX_Dispatch(in, op->weights.address, out, op->out_weights.address, s->count,
                            s->datatype, route, op->routing->layer->stream, &op->request);
    case COMBINE: return call_combine(op, in, out);
    case DISPATCH_BACKWARD:
        return EPX_Dispatch_backward(in, op->weights.address, out, op->out_weights.address,
                                     s->count, s->datatype, route, op->routing->layer->stream,
                                     &op->request);
    default:
        return EPX_Combine_backward(in, op->in2.bytes || kept ? op->in2.address : NULL,
                                    op->weights.address, out, op->out_weights.address, s->count,
                                    s->datatype, route, op->routing->layer->stream, &op->request);
    }
}

static void set_data(struct operation *op, uint64_t seed)
{
    const struct scenario *s = &op->routing->layer->s;
    enum data_kind kind = s->zeros ? DATA_ZEROS : DATA_NUMBERS;

    if (op->verb == DISPATCH)
        kind = DATA_BYTES;
    op->in_data = (struct data){data_hash(seed, 1, op->verb), s->datatype, s->count, kind};
    op->in2_data = (struct data){data_hash(seed, 2, op->verb), s->datatype, s->count, kind};
    op->weight_seed = data_hash(seed, 3, op->verb);
    for (int b = 0; b < EPX_MAX_BIASES; b++)
        op->bias_data[b] =
            (struct data){data_hash(seed, 4, (uint64_t)b), s->datatype, s->count, kind};
}

void operation_prepare(struct operation *op, struct routing *routing, enum verb verb, uint64_t seed)
{
    memset(op, 0, sizeof(*op));
    op->routing = routing;
    op->verb = verb;
    set_data(op, seed);
    make_inputs(op);
    make_outputs(op);
    if (!routing->ref->truncated)
        expect_rows(op, routing->layer->s.weightless ? NULL : &op->weight_seed);
}

void operation_refill(struct operation *op, uint64_t seed)
{
    int64_t row_bytes = (int64_t)scenario_row_bytes(&op->routing->layer->s);

    set_data(op, seed);
    fill_rows(&op->in, &op->in_data, (int64_t)op->in.bytes / row_bytes);
    if (op->in2.data)
        fill_rows(&op->in2, &op->in2_data, (int64_t)op->in2.bytes / row_bytes);
    for (int b = 0; b < EPX_MAX_BIASES; b++)
        if (op->biases[b].data)
            fill_rows(&op->biases[b], &op->bias_data[b], (int64_t)op->biases[b].bytes / row_bytes);
    if (op->weights.data)
        fill_weights(&op->weights, op->weight_seed, (int64_t)(op->weights.bytes / sizeof(float)));
    buffer_reset(&op->out);
    if (op->out_weights.data)
        buffer_reset(&op->out_weights);
    expect_rows(op, op->weights.data ? &op->weight_seed : NULL);
}

int operation_start(struct operation *op, struct routing *routing, enum verb verb, uint64_t seed)
{
    operation_prepare(op, routing, verb, seed);
    return operation_call(op);
}

int operation_route_call(struct operation *op)
{
    const struct routing *routing = op->routing;
    const struct layer *layer = routing->layer;
    int tokens = routing->tokens[suite_rank];

    routing_keep_counts(routing);
    return EPX_Route_dispatch(
        tokens ? routing->id_buffer.address : NULL, tokens, op->in.bytes ? op->in.address : NULL,
        op->weights.address, op->out.bytes ? op->out.address : NULL, op->out_weights.address,
        layer->s.count, layer->s.datatype, layer->route, layer->stream, &op->request);
}

int operation_route_start(struct operation *op, struct routing *routing, uint64_t seed)
{
    operation_prepare(op, routing, DISPATCH, seed);
    return operation_route_call(op);
}

int operation_route_finish(struct operation *op)
{
    op->routing->request = op->request;
    op->request = EPX_REQUEST_NULL;
    return routing_finish(op->routing) & operation_check(op);
}

int64_t operation_rows(const struct operation *op)
{
    const struct ref *ref = op->routing->ref;

    return starts_at_home(op->verb) ? ref->rank[suite_rank].status_rows
                                    : ref->in.tokens[suite_rank];
}

int operation_check(const struct operation *op)
{
    const char *name = verb_names[op->verb];
    const struct buffer *const buffers[] = {&op->in,       &op->in2,         &op->weights,
                                            &op->out,      &op->out_weights, &op->biases[0],
                                            &op->biases[1]};
    static const char *const parts[] = {"input",          "second input", "weights",    "output",
                                        "output weights", "first bias",   "second bias"};
    char what[48];
    int ok = 1;

    for (int i = 0; i < 7; i++) {
        snprintf(what, sizeof(what), "%s: %s", name, parts[i]);
        ok &= buffer_check(buffers[i], what);
    }
    return ok;
}

int operation_finish(struct operation *op)
{
    int wanted = op->routing->ref->truncated ? EPX_ERR_TRUNCATE : EPX_SUCCESS;
    MPI_Status status;
    int ok = EXPECT_CODE(EPX_Wait(&op->request, &status), wanted);

    ok &= EXPECT(op->request == EPX_REQUEST_NULL, "request not nulled");
    ok = ok && status_check(&status, wanted, operation_rows(op));
    return ok && operation_check(op);
}

void operation_free(struct operation *op)
{
    buffer_free(&op->in);
    buffer_free(&op->in2);
    buffer_free(&op->weights);
    buffer_free(&op->out);
    buffer_free(&op->out_weights);
    for (int b = 0; b < EPX_MAX_BIASES; b++)
        buffer_free(&op->biases[b]);
}

static void run_verb(struct routing *routing, enum verb verb, uint64_t seed)
{
    struct operation op;

    if (EXPECT_CODE(operation_start(&op, routing, verb, seed), EPX_SUCCESS))
        operation_finish(&op);
    SETTLE();
    operation_free(&op);
}

static void run_call(struct layer *layer, enum verb verb, uint64_t seed)
{
    struct routing routing;

    if (EXPECT_CODE(routing_start(&routing, layer, seed), EPX_SUCCESS))
        routing_finish(&routing);
    SETTLE();
    if (verb != VERBS)
        run_verb(&routing, verb, seed + 1);
    routing_free(&routing);
}

void layer_run(const struct scenario *scenario, EPX_Comm comm, enum verb verb, int n)
{
    struct layer layer;
    uint64_t seed = scenario->seed;

    layer_open(&layer, scenario, comm);
    SETTLE();
    for (int i = 0; i < n; i++)
        run_call(&layer, verb, seed + (uint64_t)i * 1000);
    layer_close(&layer);
    SETTLE();
}

void layer_works(EPX_Comm comm)
{
    struct scenario s = scenario_small(EPX_BFLOAT16);

    for (enum verb verb = DISPATCH; verb < VERBS; verb++)
        layer_run(&s, comm, verb, 1);
}
