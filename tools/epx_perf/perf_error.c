/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_error.c - the largest relative error of combine and dispatch backward. The rows at the
 * experts' ranks are numbers from 1 to 2 with all digits of the datatype, and the weights are from
 * 1/2 to 1, so that sums are rounded and nothing cancels. Each number is a function of its pair,
 * so that the token's own rank can add the same numbers up in float64.
 */
#include "epx_perf/perf_error.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "epx_perf/bench/perf_bench.h"
#include "epx_perf/bench/perf_number.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/bench/perf_comm.h"
#include "epx_perf/perf_expect.h"
#include "epx_perf/space/perf_alloc.h"
#include "ranks/ranks.h"

int perf_error_wanted(const struct perf_options *options)
{
    return options->check && options->verb->gathers && !options->verb->spreads;
}

/* A number from 1 to 2, 2 left out, that has so many binary digits behind the point. */
static double number(uint64_t bits, int digits)
{
    return 1 + ldexp((double)(bits >> (64 - digits)), -digits);
}

static int digits_of(EPX_Datatype datatype)
{
    switch (datatype) {
    case EPX_BFLOAT16: return 7;
    case EPX_FLOAT16: return 10;
    case EPX_FLOAT32: return FLT_MANT_DIG - 1;
    default: return DBL_MANT_DIG - 1;
    }
}

static double pair_weight(int source, int64_t pair)
{
    return number(perf_bits(perf_row_seed(source, pair), UINT64_MAX), FLT_MANT_DIG - 1) / 2;
}

/* Whether the operation multiplies rows by weights. */
static int is_weighted(const struct perf_bench *bench)
{
    return !bench->options->verb->backward && bench->options->layout != EPX_RANK_MAJOR;
}

static void fill_row(const struct perf_load *load, int source, int64_t pair, char *to)
{
    uint64_t seed = perf_row_seed(source, pair);
    int digits = digits_of(load->datatype);

    for (int c = 0; c < load->count; c++, to += load->element_bytes)
        perf_encode(load->datatype, number(perf_bits(seed, (uint64_t)c), digits), to);
}

/* Stands for the experts: puts the rows, and their weights, that this rank is to send home. */
static void fill_rows(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    const struct perf_expected *expected = perf_expected(bench);
    char *rows = perf_buffer_fetch(&bench->rows);
    float *weights = perf_buffer_fetch(&bench->row_weights);

    for (int64_t i = 0; i < expected->num_rows; i++) {
        const struct perf_expected_row *row = &expected->rows[i];
        int64_t pair = (int64_t)row->token * load->top_k + row->choice;

        if (row->source < 0)
            continue;
        fill_row(load, row->source, pair, rows + i * load->row_bytes);
        if (is_weighted(bench))
            weights[i] = (float)pair_weight(row->source, pair);
    }
    perf_buffer_send(&bench->rows);
    perf_buffer_send(&bench->row_weights);
}

/* Whether a pair has a row of its own: in the rank-major layout the first one on its rank. */
static int has_row(const struct perf_bench *bench, int64_t pair)
{
    const struct perf_load *load = &bench->load;
    int rank = perf_expected_rank(load, load->ids[pair]);

    for (int64_t i = pair - pair % load->top_k;
         i < pair && bench->options->layout == EPX_RANK_MAJOR; i++)
        if (perf_expected_rank(load, load->ids[i]) == rank)
            return 0;
    return rank >= 0;
}

/* Adds the rows of a token's pairs up in float64, in the order of its choices. */
static void sum_exactly(const struct perf_bench *bench, int64_t token, double *sums)
{
    const struct perf_load *load = &bench->load;
    int64_t first = token * load->top_k;
    int digits = digits_of(load->datatype);

    memset(sums, 0, (size_t)load->count * sizeof(*sums));
    for (int64_t pair = first; pair < first + load->top_k; pair++) {
        uint64_t seed = perf_row_seed(load->rank, pair);
        double weight = is_weighted(bench) ? pair_weight(load->rank, pair) : 1;

        if (has_row(bench, pair))
            for (int c = 0; c < load->count; c++)
                sums[c] += weight * number(perf_bits(seed, (uint64_t)c), digits);
    }
}

/* What is no number counts as the largest one. */
static double relative_error(double is, double should)
{
    double error = is == should ? 0 : fabs(is - should) / fabs(should);

    return error <= DBL_MAX ? error : DBL_MAX;
}

/* The largest error of an element on this rank. */
static double largest_error(const struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    double *should = perf_alloc(load->count, sizeof(*should)), largest = 0;
    const char *is = bench->sums.image;

    for (int64_t t = 0; t < load->tokens; t++) {
        sum_exactly(bench, t, should);
        for (int c = 0; c < load->count; c++, is += load->element_bytes) {
            double error = relative_error(perf_decode(load->datatype, is), should[c]);

            largest = error > largest ? error : largest;
        }
    }
    free(should);
    return largest;
}

static double run_once(struct perf_bench *bench)
{
    double largest;

    ranks_must(EPX_Route_tokens(perf_bench_ids(bench), bench->load.tokens, bench->route,
                                bench->stream, &bench->request));
    ranks_must(EPX_Wait(&bench->request, MPI_STATUS_IGNORE));
    perf_expect_create(bench);
    fill_rows(bench);
    perf_bench_poison(bench);
    perf_bench_operate(bench);
    perf_bench_fetch(bench);
    perf_expect_no_error(bench->comm);
    largest = largest_error(bench);
    perf_expect_free(bench);
    ranks_max(&largest, 1);
    return largest;
}

int perf_error_measure(const struct perf_options *options, int tokens, int64_t row_bytes,
                       double errors[PERF_PARTIALS])
{
    static const char *const partials[] = {
        [PERF_PARTIALS_DATATYPE] = "datatype", [PERF_PARTIALS_FLOAT32] = "float32"};
    struct perf_bench bench;

    for (int p = 0; p < PERF_PARTIALS; p++) {
        EPX_Comm comm = perf_comm_create(options, partials[p]);

        if (!comm)
            return -1;
        if (perf_bench_create(options, tokens, row_bytes, comm, &bench)) {
            EPX_Comm_free(&comm);
            return -1;
        }
        errors[p] = run_once(&bench);
        perf_bench_free(&bench);
        EPX_Comm_free(&comm);
    }
    return 0;
}
