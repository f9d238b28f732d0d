/* SPDX-License-Identifier: BSD-3-Clause */
/* fields.h - a dispatch of several fields, each compared with the reference in every byte. */
#ifndef FIELDS_H
#define FIELDS_H

#include "support/layer.h"

struct field_kind {
    EPX_Datatype datatype;
    int count;
    enum memory memory; /* of the receive buffer */
};

struct fields {
    struct routing *routing;
    int num;
    struct field_kind kind[EPX_MAX_FIELDS];
    uint64_t weight_seed;
    struct buffer in[EPX_MAX_FIELDS], out[EPX_MAX_FIELDS], weights, out_weights;
    int routes;
    EPX_Request request;
};

/* Bytes of a row of all fields together. */
int fields_row_bytes(const struct field_kind kinds[], int num);
/* Up to four fields of any types, a row of which together has at most as many bytes as one of the
 * scenario: a route may know no more. Returns how many. */
int fields_random(struct field_kind kinds[], const struct scenario *scenario, uint64_t seed);
/* Makes the buffers, for a routing that was prepared. */
void fields_prepare(struct fields *fields, struct routing *routing, const struct field_kind kinds[],
                    int num, uint64_t seed);
/* Calls EPX_Dispatch_fields, or, if it routes, EPX_Route_dispatch_fields; then overwrites the
 * arrays that it gave. */
int fields_call(struct fields *fields, int routes);
/* Compares the outputs, and the inputs with what they were. */
int fields_check(const struct fields *fields);
/* Waits, checks code and status, compares; where it routed, the view too. */
int fields_finish(struct fields *fields);
void fields_free(struct fields *fields);

#endif
