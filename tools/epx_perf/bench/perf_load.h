/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_load.h - one point of the sweep: the tokens of this rank, where they go, what comes, and
 * what the rows hold.
 */
#ifndef EPX_PERF_LOAD_H
#define EPX_PERF_LOAD_H

#include <epx.h>

struct perf_options;

struct perf_load {
    MPI_Comm comm;
    int rank, size, tokens, top_k, experts, alignment;
    int raw; /* rows are bytes that are only moved, not small numbers */
    EPX_Datatype datatype;
    int element_bytes, count;
    int64_t row_bytes, pairs;     /* pairs = tokens * top_k */
    int64_t *ids;                 /* [tokens][top_k] */
    float *weights;               /* [tokens][top_k] */
    int64_t *rows_to, *rows_from; /* [size] logical rows */
    int64_t rows_per_expert;      /* in the slab layout; else 0 */
    int64_t capacity;             /* rows that this rank receives, padding included, 1 at least */
    int64_t logical_rows;         /* received by the rank that receives most */
    int64_t wire_rows;            /* to or from other ranks, for the rank that has most */
};

/* Makes all but the ids and what follows from them. */
void perf_load_create(const struct perf_options *options, int tokens, int64_t row_bytes,
                      MPI_Comm comm, struct perf_load *load);
/* Works out weights, rows and capacity when the ids are there. Collective: 0, or -1 on all ranks,
 * rank 0 having said why. */
int perf_load_count(const struct perf_options *options, struct perf_load *load);
void perf_load_free(struct perf_load *load);

/* The rank of an expert. */
int perf_owner(const struct perf_load *load, int64_t expert);
/* The first expert of a rank; for rank `size` the number of experts. */
int perf_first_expert(const struct perf_load *load, int rank);

/* The row of a token: bytes, or elements -1, 0, 1 times a small scale. */
void perf_fill_row(const struct perf_load *load, int source, int64_t index, double scale,
                   void *row);
/* The dot product of a row of numbers with itself. */
double perf_square_row(const struct perf_load *load, int source, int64_t index);
/* Multiplies rows of numbers by a factor. */
void perf_scale_rows(const struct perf_load *load, double factor, int64_t rows, char *first);

#endif
