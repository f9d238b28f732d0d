/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_load.c - one point of the sweep: counts of rows that follow from the expert ids, and rows
 * that any rank can compute, so that it knows what it should have received.
 */
#include "epx_perf/bench/perf_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "epx_perf/bench/perf_number.h"
#include "epx_perf/bench/perf_options.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/space/perf_alloc.h"
#include "ranks/ranks.h"

int perf_owner(const struct perf_load *load, int64_t expert)
{
    return (int)(((expert + 1) * load->size - 1) / load->experts);
}

int perf_first_expert(const struct perf_load *load, int rank)
{
    return (int)((int64_t)rank * load->experts / load->size);
}

static void fill_bytes(const struct perf_load *load, uint64_t seed, char *row)
{
    for (int64_t i = 0; i < load->row_bytes; i += 8) {
        uint64_t word = perf_bits(seed, (uint64_t)i);
        int64_t left = load->row_bytes - i;

        memcpy(row + i, &word, left < 8 ? (size_t)left : 8);
    }
}

void perf_fill_row(const struct perf_load *load, int source, int64_t index, double scale, void *row)
{
    uint64_t seed = perf_row_seed(source, index);
    char *to = row;

    if (load->raw) {
        fill_bytes(load, seed, row);
        return;
    }
    for (int c = 0; c < load->count; c++, to += load->element_bytes)
        perf_encode(load->datatype, scale * perf_element(seed, c) + 0.0, to);
}

double perf_square_row(const struct perf_load *load, int source, int64_t index)
{
    uint64_t seed = perf_row_seed(source, index);
    double sum = 0;

    for (int c = 0; c < load->count; c++) {
        int element = perf_element(seed, c);

        sum += element * element;
    }
    return sum;
}

void perf_scale_rows(const struct perf_load *load, double factor, int64_t rows, char *first)
{
    char *end = first + rows * load->row_bytes;

    for (; first < end && factor != 1; first += load->element_bytes)
        perf_encode(load->datatype, factor * perf_decode(load->datatype, first), first);
}

/* Counts the pairs for each expert, and the pairs and unique rows for each rank. */
static void count(const struct perf_load *load, int64_t *expert_rows, int64_t *pairs,
                  int64_t *unique)
{
    for (int64_t i = 0; i < load->pairs; i++) {
        int owner, seen = 0;

        if (load->ids[i] < 0)
            continue;
        owner = perf_owner(load, load->ids[i]);
        for (int64_t j = i - i % load->top_k; j < i && !seen; j++)
            seen = load->ids[j] >= 0 && perf_owner(load, load->ids[j]) == owner;
        expert_rows[load->ids[i]]++;
        pairs[owner]++;
        unique[owner] += !seen;
    }
}

/* Makes slabs long enough for the rows of all experts. */
static int find_slab(const struct perf_options *options, struct perf_load *load,
                     const int64_t *expert_rows)
{
    int fullest = 0;

    if (options->layout != EPX_EXPERT_SLAB)
        return 0;
    for (int e = 1; e < load->experts; e++)
        fullest = expert_rows[e] > expert_rows[fullest] ? e : fullest;
    if (load->rows_per_expert == 0)
        load->rows_per_expert = 1;
    if (load->rows_per_expert < expert_rows[fullest])
        load->rows_per_expert = expert_rows[fullest];
    if (options->rows_per_expert)
        load->rows_per_expert = options->rows_per_expert;
    if (load->rows_per_expert >= expert_rows[fullest])
        return 0;
    if (load->rank == 0)
        fprintf(stderr, "epx_perf: expert %d gets %lld rows, more than --rows-per-expert\n",
                fullest, (long long)expert_rows[fullest]);
    return -1;
}

static int64_t slab_rows(const struct perf_load *load, int64_t rows)
{
    return load->rows_per_expert ? load->rows_per_expert
                                 : (rows + load->alignment - 1) / load->alignment * load->alignment;
}

static int64_t rows_of_slabs(const struct perf_load *load, const int64_t *expert_rows)
{
    int last = perf_first_expert(load, load->rank + 1);
    int64_t rows = 0;

    for (int e = perf_first_expert(load, load->rank); e < last; e++)
        rows += slab_rows(load, expert_rows[e]);
    return rows;
}

static int64_t sum(const int64_t *rows, int size, int leave_out)
{
    int64_t total = 0;

    for (int r = 0; r < size; r++)
        total += r == leave_out ? 0 : rows[r];
    return total;
}

static void count_wire(struct perf_load *load, const int64_t *wire_to)
{
    int64_t *wire_from = perf_alloc(load->size, sizeof(*wire_from)), out, in;

    ranks_alltoall(wire_to, wire_from, sizeof(*wire_to));
    out = sum(wire_to, load->size, load->rank);
    in = sum(wire_from, load->size, load->rank);
    load->wire_rows += ranks_most(out > in ? out : in);
    free(wire_from);
}

/* Counts the rows of the set in turn. */
static int count_set(const struct perf_options *options, struct perf_load *load)
{
    int64_t *expert_rows = perf_alloc(load->experts, sizeof(int64_t));
    int64_t *unique = perf_alloc(load->size, sizeof(int64_t));
    int by_rank = options->layout == EPX_RANK_MAJOR && !options->verb->by_pairs, rc;
    int64_t rows;

    count(load, expert_rows, load->rows_to, unique);
    count_wire(load, options->verb->by_pairs ? load->rows_to : unique);
    if (by_rank)
        memcpy(load->rows_to, unique, (size_t)load->size * sizeof(*unique));
    ranks_alltoall(load->rows_to, load->rows_from, sizeof(*load->rows_to));
    ranks_sum(expert_rows, load->experts);
    rc = find_slab(options, load, expert_rows);
    rows = sum(load->rows_from, load->size, -1);
    load->logical_rows += ranks_most(rows);
    if (!by_rank && !options->verb->by_pairs)
        rows = rows_of_slabs(load, expert_rows);
    load->capacity = rows > load->capacity ? rows : load->capacity;
    free(unique);
    free(expert_rows);
    return rc;
}

void perf_load_create(const struct perf_options *options, int tokens, int64_t row_bytes,
                      struct perf_load *load)
{
    load->rank = ranks_own();
    load->size = ranks_num();
    load->tokens = tokens;
    load->top_k = (int)options->top_k;
    load->experts = (int)options->experts;
    load->alignment = (int)options->alignment;
    load->raw = !options->verb->sums;
    load->datatype = options->datatype;
    load->element_bytes = perf_datatype_bytes(options->datatype);
    load->count = (int)(row_bytes / load->element_bytes);
    load->row_bytes = row_bytes;
    load->pairs = (int64_t)tokens * load->top_k;
    load->num_sets = options->id_sets;
    load->all_ids = perf_alloc(load->num_sets * load->pairs, sizeof(int64_t));
    load->weights = perf_alloc(load->pairs, sizeof(*load->weights));
    load->all_rows_to = perf_alloc((int64_t)load->num_sets * load->size, sizeof(int64_t));
    load->all_rows_from = perf_alloc((int64_t)load->num_sets * load->size, sizeof(int64_t));
    perf_load_take(load, 0);
}

void perf_load_take(struct perf_load *load, int set)
{
    load->ids = load->all_ids + set * load->pairs;
    load->rows_to = load->all_rows_to + (int64_t)set * load->size;
    load->rows_from = load->all_rows_from + (int64_t)set * load->size;
}

int perf_load_count(const struct perf_options *options, struct perf_load *load)
{
    int rc = 0;

    for (int64_t i = 0; i < load->pairs; i++)
        load->weights[i] = perf_weight(load->rank, i);
    load->capacity = 1;
    for (int set = 0; set < load->num_sets && rc == 0; set++) {
        perf_load_take(load, set);
        rc = count_set(options, load);
    }
    perf_load_take(load, 0);
    return rc;
}

void perf_load_free(struct perf_load *load)
{
    free(load->all_ids);
    free(load->weights);
    free(load->all_rows_to);
    free(load->all_rows_from);
}
