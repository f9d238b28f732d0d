/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * operation.h - dispatch, combine and the backwards on a layer, with every byte of their
 * outputs compared with the reference.
 */
#ifndef OPERATION_H
#define OPERATION_H

#include "support/layer.h"

enum verb { DISPATCH, COMBINE, DISPATCH_BACKWARD, COMBINE_BACKWARD, VERBS };

struct operation {
    struct routing *routing;
    enum verb verb;
    struct data in_data, in2_data, bias_data[EPX_MAX_BIASES];
    uint64_t weight_seed;
    struct buffer in, in2, weights, out, out_weights, biases[EPX_MAX_BIASES];
    EPX_Request request;
};

/* Makes the buffers; then calls the verb. */
void operation_prepare(struct operation *operation, struct routing *routing, enum verb verb,
                       uint64_t seed);
int operation_call(struct operation *operation);
/* Other data in the same buffers, for the routing in force; nothing may be in flight. */
void operation_refill(struct operation *operation, uint64_t seed);
int operation_start(struct operation *operation, struct routing *routing, enum verb verb,
                    uint64_t seed);
/* A dispatch by EPX_Route_dispatch, which makes the routing too: on a routing that was prepared,
 * not called. Finish compares the view as well. */
int operation_route_call(struct operation *operation);
int operation_route_start(struct operation *operation, struct routing *routing, uint64_t seed);
int operation_route_finish(struct operation *operation);
/* The rows that its status must report. */
int64_t operation_rows(const struct operation *operation);
/* Compares the outputs, and the inputs with what they were. */
int operation_check(const struct operation *operation);
int operation_finish(struct operation *operation);
void operation_free(struct operation *operation);

/* Routes, and runs the verb, n times with other tokens, comparing everything; settles. */
void layer_run(const struct scenario *scenario, EPX_Comm comm, enum verb verb, int n);
/* All verbs once on a small layer: shows that the communicator still works. */
void layer_works(EPX_Comm comm);

#endif
