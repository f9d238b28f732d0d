/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_expect.c - the rows that every rank should have, worked out from the ids of all ranks and
 * the documented order of rows alone.
 */
#include "epx_perf/perf_expect.h"

#include <stdlib.h>

#include "epx_perf/space/perf_alloc.h"
#include "ranks/ranks.h"

int perf_expected_rank(const struct perf_load *load, int64_t id)
{
    return id < 0 ? -1 : perf_owner(load, id);
}

static int64_t put(struct perf_expected_row *rows, int64_t at, int source, int64_t pair, int top_k)
{
    struct perf_expected_row row = {source, (int32_t)(pair / top_k), (int32_t)(pair % top_k)};

    if (rows)
        rows[at] = row;
    return at + 1;
}

/* Adds the rows behind those of an expert, which begin at `first`. */
static int64_t put_padding(const struct perf_load *load, struct perf_expected_row *rows,
                           int64_t first, int64_t num)
{
    while (load->rows_per_expert && num < first + load->rows_per_expert)
        num = put(rows, num, PERF_UNUSED, 0, load->top_k);
    while (!load->rows_per_expert && num % load->alignment)
        num = put(rows, num, -1, 0, load->top_k);
    return num;
}

/* Lists rows by (expert, source, token, choice), padded; returns their number. */
static int64_t list_by_expert(const struct perf_bench *bench, int rank,
                              struct perf_expected_row *rows)
{
    const struct perf_load *load = &bench->load;
    const int64_t *ids = perf_expected(bench)->ids;
    int last = perf_first_expert(load, rank + 1);
    int64_t num = 0;

    for (int e = perf_first_expert(load, rank); e < last; e++) {
        int64_t first = num;

        for (int64_t i = 0; i < load->pairs * load->size; i++)
            if (ids[i] == e)
                num = put(rows, num, (int)(i / load->pairs), i % load->pairs, load->top_k);
        num = put_padding(load, rows, first, num);
    }
    return num;
}

/* What required_rows must be: with slabs as many rows for each expert as the fullest gets. */
static int64_t count_required(const struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    const struct perf_expected *expected = perf_expected(bench);
    int64_t rows = 0, most = 0, experts;

    if (!load->rows_per_expert)
        return expected->num_rows;
    experts = expected->num_rows / load->rows_per_expert;
    for (int64_t i = 0; i < expected->num_rows; i++) {
        rows = i % load->rows_per_expert ? rows : 0;
        rows += expected->rows[i].source >= 0;
        most = rows > most ? rows : most;
    }
    return experts * most;
}

/* Lists rows by (source, token); the choice is the first one on the rank. */
static int64_t list_by_rank(const struct perf_bench *bench, int rank,
                            struct perf_expected_row *rows)
{
    const struct perf_load *load = &bench->load;
    const int64_t *ids = perf_expected(bench)->ids;
    int64_t num = 0, taken = -1;

    for (int64_t i = 0; i < load->pairs * load->size; i++)
        if (taken != i / load->top_k && perf_expected_rank(load, ids[i]) == rank) {
            num = put(rows, num, (int)(i / load->pairs), i % load->pairs, load->top_k);
            taken = i / load->top_k;
        }
    return num;
}

static int64_t list_rows(const struct perf_bench *bench, int rank, struct perf_expected_row *rows)
{
    return bench->options->layout == EPX_RANK_MAJOR ? list_by_rank(bench, rank, rows)
                                                    : list_by_expert(bench, rank, rows);
}

/* Fills in the slots of this rank's pairs whose experts are on the given rank. */
static void expect_slots(struct perf_bench *bench, int rank, const struct perf_expected_row *rows,
                         int64_t num)
{
    const struct perf_load *load = &bench->load;

    for (int64_t i = 0; i < num; i++) {
        int64_t first = (int64_t)rows[i].token * load->top_k;

        if (rows[i].source != load->rank)
            continue;
        for (int k = 0; k < load->top_k; k++)
            if (bench->options->layout == EPX_RANK_MAJOR
                    ? perf_expected_rank(load, load->ids[first + k]) == rank
                    : k == rows[i].choice)
                bench->expected[bench->set].slots[first + k] = (int32_t)i;
    }
}

/* Works out what is expected of the set of ids in turn. */
static void expect_set(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    struct perf_expected *expected = &bench->expected[bench->set];
    struct perf_expected_row *rows;

    expected->ids = perf_alloc(load->pairs * load->size, sizeof(int64_t));
    expected->slots = perf_alloc(load->pairs, sizeof(int32_t));
    for (int64_t i = 0; i < load->pairs; i++)
        expected->slots[i] = -1;
    ranks_allgather(load->ids, expected->ids, (size_t)load->pairs * sizeof(*load->ids));
    for (int r = 0; r < load->size; r++) {
        int64_t num = list_rows(bench, r, NULL);

        rows = perf_alloc(num, sizeof(*rows));
        list_rows(bench, r, rows);
        expect_slots(bench, r, rows, num);
        if (r != load->rank) {
            free(rows);
            continue;
        }
        expected->rows = rows;
        expected->num_rows = num;
    }
    expected->num_required = count_required(bench);
}

const struct perf_expected *perf_expected(const struct perf_bench *bench)
{
    return &bench->expected[bench->set];
}

void perf_expect_create(struct perf_bench *bench)
{
    for (int set = 0; set < bench->load.num_sets; set++) {
        perf_bench_take(bench, set);
        expect_set(bench);
    }
    perf_bench_take(bench, 0);
}

void perf_expect_free(struct perf_bench *bench)
{
    for (int set = 0; set < bench->load.num_sets; set++) {
        free(bench->expected[set].ids);
        free(bench->expected[set].rows);
        free(bench->expected[set].slots);
    }
}
