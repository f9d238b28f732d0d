/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * data.h - test data as a pure function of (seed, rank, row), so that any rank can compute what
 * any other rank sent.
 */
#ifndef DATA_H
#define DATA_H

#include "epx.h"

enum data_kind {
    DATA_BYTES,   /* any */
    DATA_NUMBERS, /* finite, some of them subnormals and zeros of either sign */
    DATA_ZEROS    /* in a row all of one sign */
};

struct data {
    uint64_t seed;
    EPX_Datatype datatype;
    int count; /* elements a row */
    enum data_kind kind;
};

uint64_t data_hash(uint64_t seed, uint64_t a, uint64_t b);
/* A number from 0 to below - 1. */
int data_below(uint64_t seed, uint64_t a, uint64_t b, int below);
size_t data_size(EPX_Datatype datatype);
size_t data_row_bytes(const struct data *data);
void data_row(const struct data *data, int rank, int64_t row, void *out);
/* A number from -2 to 2; one in sixteen is a zero of either sign. */
float data_weight(uint64_t seed, int rank, int64_t index);

#endif
