/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * field.h - the arrays of rows that an operation moves. EPX_Dispatch_fields and
 * EPX_Route_dispatch_fields move several with one routing; all other operations move one.
 */
#ifndef EPX_BASE_FIELD_H
#define EPX_BASE_FIELD_H

#include "epx.h"

struct epx_field {
    const void *in; /* what the verb moves: sendbuf, grad_recv or grad */
    void *out;
    int64_t bytes; /* of a row */
};

/* A row that travels by message or ring is the concatenation of its fields. */
struct epx_fields {
    int num;
    struct epx_field at[EPX_MAX_FIELDS];
};

#endif
