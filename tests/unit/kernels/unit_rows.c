/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_rows.c - sums of rows where order and rounding show: on four ranks, of which 0 and 2 are
 * on the home's node, 1 and 3 on the other.
 */
#include "kernels/host/rows.h"

#include <stdlib.h>
#include <string.h>

#include "support/reference.h"
#include "support/suite.h"

enum { RANKS = 4 };

static const int32_t two_nodes[RANKS] = {0, 1, 0, 1}, one_node[RANKS];
static const int32_t by_node[RANKS] = {0, 2, 1, 3}, by_rank[RANKS] = {0, 1, 2, 3};

/* The sum of one element from each rank that has a number, as raw bits of the datatype. */
static void sum_partials(EPX_Datatype datatype, EPX_Datatype partial, const int32_t *node, int home,
                         const double *values, void *result)
{
    struct epx_plan plan = {.rank = home};
    struct epx_home_rows op = {
        .datatype = datatype, .partial = partial, .node = node, .rows = result};
    const int32_t *order = node == two_nodes ? by_node : by_rank;
    double elements[RANKS];
    const char *rows[RANKS];
    int32_t ranks[RANKS];
    int num = 0;

    op.cut = epx_segments_cut(epx_datatype_bytes(partial), 1 << 16);
    for (int i = 0; i < RANKS; i++)
        if (values[order[i]] == values[order[i]]) {
            ranks[num] = order[i];
            ref_store(partial, &elements[num], 0, values[order[i]]);
            rows[num] = (const char *)&elements[num];
            num++;
        }
    epx_sum_token_rows(&plan, &op, 0, 0, (struct epx_token_parts){rows, ranks, num});
}

static void sum(EPX_Datatype datatype, const int32_t *node, int home, const double *values,
                void *result)
{
    sum_partials(datatype, datatype, node, home, values, result);
}

static double sum_of(EPX_Datatype datatype, const int32_t *node, int home, const double *values)
{
    double result = 99;

    sum(datatype, node, home, values, &result);
    return ref_load(datatype, &result, 0);
}

#define NONE (0.0 / 0.0)

START_TEST(the_sum_of_another_node_is_rounded)
{
    const double values[RANKS] = {NONE, 1, 0x1p-8, 0x1p-8};

    ck_assert(sum_of(EPX_BFLOAT16, two_nodes, 0, values) == 1);
    ck_assert(sum_of(EPX_BFLOAT16, one_node, 0, values) == 1 + 0x1p-7);
}
END_TEST

/* 1 + 2^-8 is no bfloat16, but a float32: nothing is lost before the last rounding. */
START_TEST(wide_partials_are_rounded_once)
{
    const double values[RANKS] = {NONE, 1 + 0x1p-8, 0x1p-9, 0x1p-9};
    double result = 0;

    sum_partials(EPX_BFLOAT16, EPX_FLOAT32, two_nodes, 0, values, &result);
    ck_assert(ref_load(EPX_BFLOAT16, &result, 0) == 1 + 0x1p-7);
    ck_assert(sum_of(EPX_BFLOAT16, two_nodes, 0, values) == 1);
}
END_TEST

START_TEST(the_sum_of_the_homes_node_is_not_rounded)
{
    const double values[RANKS] = {1, 0x1p-8, 0x1p-8, NONE};

    ck_assert(sum_of(EPX_BFLOAT16, two_nodes, 0, values) == 1 + 0x1p-7);
    ck_assert(sum_of(EPX_BFLOAT16, two_nodes, 2, values) == 1 + 0x1p-7);
    ck_assert(sum_of(EPX_BFLOAT16, two_nodes, 1, values) == 1);
}
END_TEST

START_TEST(float16_is_rounded_for_another_node_too)
{
    const double values[RANKS] = {NONE, 1, 0x1p-11, 0x1p-11};

    ck_assert(sum_of(EPX_FLOAT16, two_nodes, 0, values) == 1);
    ck_assert(sum_of(EPX_FLOAT16, one_node, 0, values) == 1 + 0x1p-10);
}
END_TEST

/* Sums with one node: (1 + big) + 1; with two: big + (1 + 1). */
START_TEST(sums_go_by_node_then_rank)
{
    const double floats[RANKS] = {NONE, 1, 0x1p24, 1}, doubles[RANKS] = {NONE, 1, 0x1p53, 1};

    ck_assert(sum_of(EPX_FLOAT32, two_nodes, 0, floats) == 0x1p24 + 2);
    ck_assert(sum_of(EPX_FLOAT32, one_node, 0, floats) == 0x1p24);
    ck_assert(sum_of(EPX_FLOAT64, two_nodes, 0, doubles) == 0x1p53 + 2);
    ck_assert(sum_of(EPX_FLOAT64, one_node, 0, doubles) == 0x1p53);
}
END_TEST

START_TEST(within_a_node_sums_go_by_rank)
{
    const double values[RANKS] = {0x1p24, 1, 1, -0x1p24};

    ck_assert(sum_of(EPX_FLOAT32, one_node, 0, values) == 0);
    ck_assert(sum_of(EPX_FLOAT32, two_nodes, 0, values) == 1);
    ck_assert(sum_of(EPX_FLOAT64, one_node, 0, values) == 2);
}
END_TEST

static const EPX_Datatype types[] = {EPX_FLOAT16, EPX_BFLOAT16, EPX_FLOAT32, EPX_FLOAT64};

static void expect_zero(EPX_Datatype datatype, const double *values, double zero)
{
    unsigned char wanted[8], got[8];

    memset(got, 0x55, sizeof(got));
    sum(datatype, two_nodes, 0, values, got);
    ref_store(datatype, wanted, 0, zero);
    ck_assert_int_eq(memcmp(got, wanted, data_size(datatype)), 0);
    ck_assert_uint_eq(got[7], data_size(datatype) == 8 ? wanted[7] : 0x55);
}

START_TEST(sums_start_from_the_first_term)
{
    const double one[RANKS] = {NONE, NONE, NONE, -0.0}, all[RANKS] = {-0.0, -0.0, -0.0, -0.0};
    const double mixed[RANKS] = {-0.0, -0.0, 0.0, -0.0}, nothing[RANKS] = {NONE, NONE, NONE, NONE};

    expect_zero(types[_i], one, -0.0);
    expect_zero(types[_i], all, -0.0);
    expect_zero(types[_i], mixed, 0.0);
    expect_zero(types[_i], nothing, 0.0);
}
END_TEST

/* Long rows in segments: every element of the token's row, and no other row. */
START_TEST(long_rows_are_summed_in_every_segment)
{
    enum { COUNT = 9001, TOKEN = 1 };
    const size_t bytes = COUNT * sizeof(double);
    double *rows_of[3], *out = calloc(3, bytes);
    struct epx_plan plan = {.rank = 0};
    struct epx_home_rows op = {
        .datatype = EPX_FLOAT64, .partial = EPX_FLOAT64, .node = one_node, .rows = out};
    const int32_t ranks[] = {0, 1, 3};

    op.cut = epx_segments_cut((int64_t)bytes, 20000);
    ck_assert_int_gt(op.cut.num, 3);
    for (int r = 0; r < 3; r++) {
        rows_of[r] = calloc(1, bytes);
        for (int i = 0; i < COUNT; i++)
            rows_of[r][i] = data_below(9, (uint64_t)r, (uint64_t)i, 1000);
    }
    for (int64_t segment = 0; segment < op.cut.num; segment++) {
        const char *rows[3];

        for (int r = 0; r < 3; r++)
            rows[r] = (char *)rows_of[r] + epx_segment_offset(op.cut, segment);
        epx_sum_token_rows(&plan, &op, TOKEN, segment, (struct epx_token_parts){rows, ranks, 3});
    }
    for (int i = 0; i < 3 * COUNT; i++) {
        int k = i - TOKEN * COUNT, inside = k >= 0 && k < COUNT;

        ck_assert(out[i] == (inside ? rows_of[0][k] + rows_of[1][k] + rows_of[2][k] : 0));
    }
    for (int r = 0; r < 3; r++)
        free(rows_of[r]);
    free(out);
}
END_TEST

/* Pairs of one rank: slots 2, 0, 1 in choice order. */
static double sum_pairs(EPX_Datatype datatype, const double *values, const float *weights)
{
    int32_t words[16] = {0};
    struct epx_plan plan = {.shape = {.top_k = 3}, .record_shape = epx_record_shape(3, 0)};
    struct epx_expert_rows op = {.datatype = datatype, .partial = datatype, .weights_in = weights};
    char rows[3 * 8], result[8];

    words[EPX_RECORD_SLOTS] = words[EPX_RECORD_PAIRS] = 3;
    epx_record_slots(words)[0] = 2;
    epx_record_slots(words)[2] = 1;
    for (int i = 0; i < 3; i++)
        ref_store(datatype, rows, i, values[i]);
    op.cut = epx_segments_cut(epx_datatype_bytes(datatype), 1 << 16);
    op.rows_in = rows;
    epx_sum_row_pairs(&plan, &op, words, 0, result);
    return ref_load(datatype, result, 0);
}

START_TEST(pairs_are_summed_in_choice_order_without_fma)
{
    const double order[] = {1, 1, 0x1p24}, last_big[] = {0x1p24, 1, 1};
    const double products[] = {1 + 0x1p-12, 0, -1};
    const float weights[] = {1 + 0x1p-12f, 0, 1 + 0x1p-11f};

    ck_assert(sum_pairs(EPX_FLOAT32, order, NULL) == 0x1p24);
    ck_assert(sum_pairs(EPX_FLOAT32, last_big, NULL) == 0x1p24);
    ck_assert(sum_pairs(EPX_FLOAT32, (const double[]){1, 0x1p24, 1}, NULL) == 0x1p24 + 2);
    ck_assert(sum_pairs(EPX_FLOAT32, products, weights) == 0);
    ck_assert(sum_pairs(EPX_FLOAT64, products, weights) == 0x1p-24);
    ck_assert(sum_pairs(EPX_BFLOAT16, (const double[]){0x1p-8, 0x1p-8, 1}, NULL) == 1 + 0x1p-7);
}
END_TEST

/* Rows of any length at any place, past the caches (1) or not (0): exactly their bytes are
 * copied. */
START_TEST(a_row_is_copied_whole_and_alone)
{
    enum { PLACES = 66, LENGTH = 700 };
    static char from[PLACES + LENGTH], to[PLACES + LENGTH + 64], expected[PLACES + LENGTH + 64];
    int wrong = 0;

    for (int i = 0; i < PLACES + LENGTH; i++)
        from[i] = (char)(i * 7 + i / 256);
    for (int length = 0; length <= LENGTH; length += length < 300 ? 37 : 1)
        for (int place = 0; place < PLACES; place++) {
            memset(to, 0x5a, sizeof(to));
            memset(expected, 0x5a, sizeof(expected));
            memcpy(expected + place, from + place / 5, (size_t)length);
            epx_row_copy(to + place, from + place / 5, length, _i);
            epx_row_copy_fence();
            wrong += memcmp(to, expected, sizeof(to)) != 0;
        }
    EXPECT(wrong == 0, "%d copies are wrong", wrong);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("rows");
    TCase *tcase = tcase_create("rows");

    tcase_add_test(tcase, the_sum_of_another_node_is_rounded);
    tcase_add_test(tcase, wide_partials_are_rounded_once);
    tcase_add_test(tcase, the_sum_of_the_homes_node_is_not_rounded);
    tcase_add_test(tcase, float16_is_rounded_for_another_node_too);
    tcase_add_test(tcase, sums_go_by_node_then_rank);
    tcase_add_test(tcase, within_a_node_sums_go_by_rank);
    tcase_add_loop_test(tcase, sums_start_from_the_first_term, 0, 4);
    tcase_add_test(tcase, long_rows_are_summed_in_every_segment);
    tcase_add_test(tcase, pairs_are_summed_in_choice_order_without_fma);
    tcase_add_loop_test(tcase, a_row_is_copied_whole_and_alone, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
