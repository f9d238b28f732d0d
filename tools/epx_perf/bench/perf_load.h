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
    int rank, size, tokens, top_k, experts, alignment;
    int raw; /* rows are bytes that are only moved, not small numbers */
    EPX_Datatype datatype;
    int element_bytes, count;
    int64_t row_bytes, pairs;     /* pairs = tokens * top_k */
    int64_t *ids;                 /* [tokens][top_k] of the set in turn */
    float *weights;               /* [tokens][top_k] */
    int64_t *rows_to, *rows_from; /* [size] logical rows of the set in turn */
    int num_sets;                 /* of ids, with their rows: [num_sets] of the three */
    int64_t *all_ids, *all_rows_to, *all_rows_from;
    int64_t rows_per_expert; /* in the slab layout, enough for every set; else 0 */
    int64_t capacity;        /* the most rows that this rank receives of a set, padding included, 1
                                at least */
    int64_t logical_rows;    /* received by the rank that receives most, summed over the sets */
    int64_t wire_rows;       /* to or from other ranks, for the rank that has most, likewise */
};

/* Makes all but the ids and what follows from them. */
void perf_load_create(const struct perf_options *options, int tokens, int64_t row_bytes,
                      struct perf_load *load);
/* Works out weights, rows and capacity when the ids of all sets are there. Collective: 0, or -1 on
 * all ranks, rank 0 having said why. */
int perf_load_count(const struct perf_options *options, struct perf_load *load);
/* Makes a set of ids, and the counts of rows that follow from it, those in turn. */
void perf_load_take(struct perf_load *load, int set);
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
