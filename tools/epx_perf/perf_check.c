/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_check.c - compares what this rank has received with what it should have received. */
#include "epx_perf/perf_check.h"

#include <stdlib.h>
#include <string.h>

#include "epx_perf/bench/perf_number.h"
#include "epx_perf/peer/perf_peer.h"
#include "epx_perf/perf_expect.h"
#include "epx_perf/space/perf_alloc.h"

static int64_t count_padding(const struct perf_bench *bench)
{
    const struct perf_expected *expected = perf_expected(bench);
    int64_t padding = 0;

    for (int64_t i = 0; i < expected->num_rows; i++)
        padding += expected->rows[i].source < 0;
    return padding;
}

int64_t perf_check_route(const struct perf_bench *bench, enum perf_side side)
{
    const struct perf_expected *expected = perf_expected(bench);
    const EPX_Route_view *view = &bench->seen;
    int64_t wrong = 0;

    if (side == PERF_PEER)
        return perf_peer_num_rows(bench->peer) != expected->num_rows - count_padding(bench);
    if (*view->num_rows != expected->num_rows || *view->required_rows != expected->num_required)
        return expected->num_rows + 1;
    for (int64_t i = 0; i < expected->num_rows; i++) {
        const struct perf_expected_row *row = &expected->rows[i];

        wrong += view->row_ranks[i] != (row->source < 0 ? -1 : row->source) ||
                 view->row_tokens[i] != (row->source < 0 ? -1 : row->token);
    }
    for (int64_t i = 0; i < bench->load.pairs; i++)
        wrong += view->slots[i] != expected->slots[i];
    return wrong;
}

static float expected_weight(const struct perf_bench *bench, const struct perf_expected_row *row,
                             int choice)
{
    const struct perf_load *load = &bench->load;
    int64_t pair = (int64_t)row->token * load->top_k + choice;

    if (row->source < 0 ||
        perf_expected_rank(load, perf_expected(bench)->ids[row->source * load->pairs + pair]) !=
            load->rank)
        return 0;
    return perf_weight(row->source, pair);
}

static int weights_differ(const struct perf_bench *bench, int64_t i)
{
    const struct perf_expected_row *row = &perf_expected(bench)->rows[i];
    const float *weights = bench->row_weights.image;
    int top_k = bench->load.top_k, differ = 0;

    if (bench->options->layout != EPX_RANK_MAJOR)
        return weights[i] != expected_weight(bench, row, row->choice);
    for (int k = 0; k < top_k; k++)
        differ |= weights[i * top_k + k] != expected_weight(bench, row, k);
    return differ;
}

/* Copies row i of all fields, one behind the other. */
static void join_fields(const struct perf_bench *bench, int64_t i, char *row)
{
    for (int f = 0; f < bench->options->num_fields; f++) {
        int64_t bytes = perf_field_bytes(bench, f);

        memcpy(row, (const char *)bench->field_rows[f].image + i * bytes, (size_t)bytes);
        row += bytes;
    }
}

int64_t perf_check_dispatch(const struct perf_bench *bench, enum perf_side side)
{
    const struct perf_load *load = &bench->load;
    const struct perf_expected *expected = perf_expected(bench);
    size_t row_bytes = (size_t)load->row_bytes;
    char *should = perf_alloc(1, load->row_bytes), *joined = perf_alloc(1, load->row_bytes);
    int64_t wrong = 0, pair = 0;

    for (int64_t i = 0; i < expected->num_rows; i++) {
        const struct perf_expected_row *row = &expected->rows[i];
        const char *is = (const char *)bench->rows.image + i * load->row_bytes;

        if (row->source == PERF_UNUSED || (side == PERF_PEER && row->source < 0))
            continue;
        if (side == PERF_PEER) {
            is = perf_peer_row(bench->peer, pair++);
        } else if (bench->options->num_fields) {
            join_fields(bench, i, joined);
            is = joined;
        }
        memset(should, 0, row_bytes);
        if (row->source >= 0)
            perf_fill_row(load, row->source, row->token, 1, should);
        wrong += memcmp(is, should, row_bytes) || (side == PERF_EPX && weights_differ(bench, i));
    }
    free(joined);
    free(should);
    return wrong;
}

int64_t perf_check_route_dispatch(const struct perf_bench *bench, enum perf_side side)
{
    return perf_check_route(bench, side) + perf_check_dispatch(bench, side);
}

/* The factor by which the expert of a row has multiplied it. */
static double row_factor(const struct perf_bench *bench, const struct perf_expected_row *row)
{
    const struct perf_load *load = &bench->load;
    int64_t pair = (int64_t)row->token * load->top_k + row->choice;

    if (bench->options->layout == EPX_RANK_MAJOR)
        return perf_factor(load->rank);
    return perf_factor(perf_expected(bench)->ids[row->source * load->pairs + pair]);
}

int64_t perf_check_combine_backward(const struct perf_bench *bench, enum perf_side side)
{
    const struct perf_load *load = &bench->load;
    const struct perf_expected *expected = perf_expected(bench);
    const float *grads = bench->weight_grads.image;
    char *should = perf_alloc(1, load->row_bytes);
    int64_t wrong = 0;

    (void)side;
    for (int64_t i = 0; i < expected->num_rows; i++) {
        const struct perf_expected_row *row = &expected->rows[i];
        const char *is = (const char *)bench->rows.image + i * load->row_bytes;
        double weight = 1, dot = 0;

        if (row->source == PERF_UNUSED)
            continue;
        memset(should, 0, (size_t)load->row_bytes);
        if (row->source >= 0) {
            if (bench->options->layout != EPX_RANK_MAJOR)
                weight = (double)expected_weight(bench, row, row->choice);
            perf_fill_row(load, row->source, row->token, weight, should);
            dot = row_factor(bench, row) * perf_square_row(load, row->source, row->token);
        }
        wrong += memcmp(is, should, (size_t)load->row_bytes) || (double)grads[i] != dot;
    }
    free(should);
    return wrong;
}

/* The factor between a token's row and the sum of the rows of all its experts. */
static double expected_scale(const struct perf_bench *bench, int token)
{
    const struct perf_load *load = &bench->load;
    int by_rank = bench->options->layout == EPX_RANK_MAJOR;
    int scaled = !bench->options->verb->spreads, weighted = !bench->options->verb->backward;
    double scale = 0;

    for (int r = 0; r < load->size; r++) {
        int there = 0;

        for (int64_t i = (int64_t)token * load->top_k; i < (token + 1) * (int64_t)load->top_k;
             i++) {
            if (perf_expected_rank(load, load->ids[i]) != r)
                continue;
            there = 1;
            if (!by_rank)
                scale += (weighted ? (double)load->weights[i] : 1) *
                         (scaled ? perf_factor(load->ids[i]) : 1);
        }
        if (by_rank && there)
            scale += scaled ? perf_factor(r) : 1;
    }
    return scale;
}

int64_t perf_check_sums(const struct perf_bench *bench, enum perf_side side)
{
    const struct perf_load *load = &bench->load;
    const char *sums = side == PERF_PEER ? perf_peer_sums(bench->peer) : bench->sums.image;
    char *should = perf_alloc(1, load->row_bytes);
    int64_t wrong = 0;

    for (int t = 0; t < load->tokens; t++) {
        perf_fill_row(load, load->rank, t, expected_scale(bench, t), should);
        wrong += memcmp(sums + t * load->row_bytes, should, (size_t)load->row_bytes) != 0;
    }
    free(should);
    return wrong;
}

/* A token's sum may be the same with other experts: its route tells them apart. */
int64_t perf_check_layer(const struct perf_bench *bench, enum perf_side side)
{
    return perf_check_route(bench, side) + perf_check_sums(bench, side);
}

int64_t perf_check_dispatch_backward(const struct perf_bench *bench, enum perf_side side)
{
    const struct perf_load *load = &bench->load;
    const float *grads = bench->weight_grads.image;
    int64_t wrong = perf_check_sums(bench, side);

    for (int64_t i = 0; i < load->pairs; i += load->top_k) {
        int differ = 0;

        for (int64_t k = i; k < i + load->top_k; k++)
            differ |= grads[k] != (load->ids[k] < 0 ? 0 : load->weights[k]);
        wrong += differ;
    }
    return wrong;
}

static int counts_differ(const struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    const int64_t *counts = bench->recv_counts.image, *displs = bench->recv_displs.image;
    int64_t displ = 0;

    for (int s = 0; s < load->size; displ += load->rows_from[s++])
        if (counts[s] != load->rows_from[s] || displs[s] != displ)
            return 1;
    return 0;
}

int64_t perf_check_alltoallv(const struct perf_bench *bench, enum perf_side side)
{
    const struct perf_load *load = &bench->load;
    const char *is = side == PERF_PEER ? perf_peer_rows(bench->peer) : bench->rows.image;
    char *should = perf_alloc(1, load->row_bytes);
    int64_t wrong = side == PERF_EPX && counts_differ(bench);

    for (int s = 0; s < load->size; s++)
        for (int64_t i = 0; i < load->rows_from[s]; i++, is += load->row_bytes) {
            perf_fill_row(load, s, bench->peer_displs[s] + i, 1, should);
            wrong += memcmp(is, should, (size_t)load->row_bytes) != 0;
        }
    free(should);
    return wrong;
}
