/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_stage_stores.c - which way blocks are stored into stages, on pretended memory. */
#include "kernels/host/stage_stores.h"

#include "support/suite.h"

enum {
    BLOCK = 1 << 16,
    ROW = 1 << 10,
    MANY = 4 * EPX_STORES_TURN,
    FEW = 4 * EPX_STORES_TRIALS,
    BOTH_KNOWN = 2 + EPX_STORES_TRIALS
};

/* ns that a block takes, through the caches and past them. */
struct memory {
    int64_t ns[2];
};

static const struct memory together = {{3000, 4000}}, apart = {{20000, 4000}};
static const struct memory a_bit_slower = {{5500, 4000}};

/* Stores blocks; returns how many went past the caches. */
static int store(struct epx_stage_stores *stores, struct memory memory, int64_t bytes, int num)
{
    int past = 0;

    for (int i = 0; i < num; i++) {
        stores->bypasses = epx_stage_stores_choose(stores, bytes);
        epx_stage_stores_note(stores, bytes, memory.ns[stores->bypasses]);
        past += stores->bypasses;
    }
    return past;
}

START_TEST(the_faster_way_is_taken)
{
    struct epx_stage_stores near = {.there = 1}, far = {.there = 1};

    store(&near, together, BLOCK, BOTH_KNOWN);
    store(&far, apart, BLOCK, BOTH_KNOWN);
    ck_assert_int_le(store(&near, together, BLOCK, MANY), FEW);
    ck_assert_int_ge(store(&far, apart, BLOCK, MANY), MANY - FEW);
}
END_TEST

START_TEST(the_caches_are_preferred)
{
    struct epx_stage_stores stores = {.there = 1};

    store(&stores, a_bit_slower, BLOCK, BOTH_KNOWN);
    ck_assert_int_le(store(&stores, a_bit_slower, BLOCK, MANY), FEW);
}
END_TEST

/* The other way is taken within one turn of trials. */
START_TEST(a_core_that_moves_is_followed)
{
    struct epx_stage_stores stores = {.there = 1};

    for (int i = 0; i < 3; i++) {
        store(&stores, together, BLOCK, MANY);
        ck_assert_int_le(store(&stores, together, BLOCK, MANY), FEW);
        store(&stores, apart, BLOCK, 32);
        ck_assert_int_ge(store(&stores, apart, BLOCK, MANY), MANY - FEW);
    }
}
END_TEST

START_TEST(an_interrupt_changes_nothing)
{
    const struct memory interrupted = {{10000000, 10000000}};
    struct epx_stage_stores stores = {.there = 1};

    for (int i = 0; i < 20; i++) {
        store(&stores, together, BLOCK, EPX_STORES_TURN + i);
        store(&stores, interrupted, BLOCK, 1);
        ck_assert_int_le(store(&stores, together, BLOCK, MANY), FEW);
    }
}
END_TEST

START_TEST(what_holds_for_a_size_holds_for_it_alone)
{
    struct epx_stage_stores stores = {.there = 1};
    int64_t bytes = EPX_STORES_LEAST;

    for (int size = 0; size < EPX_STORES_SIZES; size++, bytes *= 4) {
        struct memory memory = size % 2 ? apart : together;
        int most = size % 2 ? MANY : FEW, least = size % 2 ? MANY - FEW : 0, past;

        store(&stores, memory, bytes, BOTH_KNOWN);
        past = store(&stores, memory, 4 * bytes - 1, MANY);
        ck_assert_int_le(past, most);
        ck_assert_int_ge(past, least);
    }
    ck_assert_int_eq(epx_stage_stores_choose(&stores, INT64_MAX), 1);
}
END_TEST

static void store_timed(struct epx_stage_stores *stores, int64_t rows, int64_t row_bytes)
{
    epx_stage_stores_begin(stores, rows, row_bytes);
    epx_stage_stores_end(stores);
}

START_TEST(own_stages_short_blocks_and_short_rows_go_through_the_caches)
{
    struct epx_stage_stores own = {0}, stores = {.there = 1};

    store_timed(&stores, BLOCK / ROW, ROW);
    ck_assert_int_eq(stores.bypasses, 1);
    stores = (struct epx_stage_stores){.there = 1};
    for (int i = 0; i < MANY; i++) {
        store_timed(&own, BLOCK / ROW, ROW);
        ck_assert_int_eq(own.bypasses, 0);
        store_timed(&stores, EPX_STORES_LEAST / ROW - 1, ROW);
        ck_assert_int_eq(stores.bypasses, 0);
        store_timed(&stores, BLOCK, 255);
        ck_assert_int_eq(stores.bypasses, 0);
        store_timed(&stores, 0, ROW);
        ck_assert_int_eq(stores.bypasses, 0);
    }
    for (int size = 0; size < EPX_STORES_SIZES; size++)
        ck_assert_uint_eq(own.costs[size].blocks + stores.costs[size].blocks, 0);
}
END_TEST

START_TEST(blocks_are_timed)
{
    struct epx_stage_stores stores = {.there = 1};
    const struct epx_store_costs *costs = &stores.costs[2];

    for (int i = 1; i <= BOTH_KNOWN; i++) {
        store_timed(&stores, BLOCK / ROW, ROW);
        ck_assert_uint_eq(costs->blocks, (unsigned)i);
    }
    ck_assert(costs->ns_per_byte[0] > 0 && costs->ns_per_byte[1] > 0);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("stage stores");
    TCase *tcase = tcase_create("ways");

    tcase_add_test(tcase, the_faster_way_is_taken);
    tcase_add_test(tcase, the_caches_are_preferred);
    tcase_add_test(tcase, a_core_that_moves_is_followed);
    tcase_add_test(tcase, an_interrupt_changes_nothing);
    tcase_add_test(tcase, what_holds_for_a_size_holds_for_it_alone);
    tcase_add_test(tcase, own_stages_short_blocks_and_short_rows_go_through_the_caches);
    tcase_add_test(tcase, blocks_are_timed);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
