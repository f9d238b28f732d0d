/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_waits.c - to whom the time of a wait is charged, look by look. */
#include <string.h>

#include "core/health/wait_times.h"
#include "support/suite.h"

enum { RANKS = 4, ME = 1, US = 1000, LONG_AGO = 1000 * US };

static struct epx_waits waits;
static char lacking[RANKS];

static int lacks(const void *step, int rank)
{
    ck_assert_ptr_eq(step, lacking);
    return lacking[rank];
}

static void begin(void)
{
    memset(&waits, 0, sizeof(waits));
    memset(lacking, 0, sizeof(lacking));
    ck_assert_int_eq(epx_waits_create(&waits, ME, RANKS), EPX_SUCCESS);
}

static void end(void)
{
    epx_waits_free(&waits);
}

/* A look so many microseconds after some moment. */
static void look(int us)
{
    epx_waits_look(&waits, (struct epx_waits_lack){lacks, lacking}, LONG_AGO + us * US);
}

static void complete(void)
{
    waits.looked_ns = 0; /* the wait ended at the last look */
    epx_waits_step(&waits, 1);
    epx_waits_end(&waits);
}

static void expect(const uint64_t us[RANKS], const uint64_t operations[RANKS])
{
    uint64_t ns[RANKS], last[RANKS];
    EPX_Waits told = EPX_WAITS_INIT;

    told.ns = ns;
    told.operations = last;
    ck_assert_int_eq(epx_waits_copy(&waits, &told), EPX_SUCCESS);
    ck_assert_int_eq(told.num_ranks, RANKS);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_uint_eq(ns[r], us[r] * US);
        ck_assert_uint_eq(last[r], operations[r]);
    }
}

START_TEST(each_late_rank_has_its_own_time)
{
    lacking[0] = lacking[2] = lacking[3] = 1;
    look(0);
    look(10);
    lacking[2] = 0;
    look(30);
    lacking[0] = 0;
    look(31);
    look(81);
    expect((const uint64_t[]){31, 0, 30, 81}, (const uint64_t[]){0, 0, 0, 0});
    complete();
    expect((const uint64_t[]){31, 0, 30, 81}, (const uint64_t[]){0, 0, 0, 1});
}
END_TEST

/* Waits for rows come after all ranks have called the operation, so nobody came last there. */
START_TEST(waits_for_rows_are_time_alone)
{
    epx_waits_step(&waits, 1);
    lacking[2] = 1;
    look(0);
    look(5);
    complete();
    expect((const uint64_t[]){0, 0, 5, 0}, (const uint64_t[]){0, 0, 0, 0});
}
END_TEST

START_TEST(time_elsewhere_is_no_wait_but_polls_are)
{
    lacking[0] = 1;
    look(0);
    epx_waits_leave();
    look(20);
    epx_waits_leave();
    look(5020);
    look(5021);
    expect((const uint64_t[]){21, 0, 0, 0}, (const uint64_t[]){0, 0, 0, 0});
    look(9021); /* within one call: another process had the CPU */
    expect((const uint64_t[]){4021, 0, 0, 0}, (const uint64_t[]){0, 0, 0, 0});
}
END_TEST

START_TEST(a_thread_of_progress_is_never_elsewhere)
{
    waits.threaded = 1;
    lacking[0] = 1;
    look(0);
    epx_waits_leave();
    look(5000);
    expect((const uint64_t[]){5000, 0, 0, 0}, (const uint64_t[]){0, 0, 0, 0});
}
END_TEST

START_TEST(without_words_who_waited_least_came_last)
{
    const int64_t waited_ns[RANKS] = {70 * US, 100 * US, 10 * US, 130 * US};
    struct epx_waits_told told = {100 * US, 95 * US};

    look(0);
    look(42);
    waits.looked_ns = 0;
    epx_waits_compare(&waits, &told, 50 * US, waited_ns, sizeof(waited_ns[0]));
    complete();
    expect((const uint64_t[]){30, 0, 90, 0}, (const uint64_t[]){0, 0, 1, 0});
    ck_assert_int_eq(told.waited_ns, 50 * US);
    ck_assert_int_eq(told.counted_ns, 42 * US);
}
END_TEST

START_TEST(no_more_is_charged_than_this_rank_waited)
{
    const int64_t waited_ns[RANKS] = {0, 100 * US, 10 * US, 99 * US};
    struct epx_waits_told told = {100 * US, 5 * US};

    epx_waits_compare(&waits, &told, 0, waited_ns, sizeof(waited_ns[0]));
    complete();
    expect((const uint64_t[]){5, 0, 5, 1}, (const uint64_t[]){1, 0, 1, 0});
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("waits");
    TCase *tcase = tcase_create("waits");

    tcase_add_checked_fixture(tcase, begin, end);
    tcase_add_test(tcase, each_late_rank_has_its_own_time);
    tcase_add_test(tcase, waits_for_rows_are_time_alone);
    tcase_add_test(tcase, time_elsewhere_is_no_wait_but_polls_are);
    tcase_add_test(tcase, a_thread_of_progress_is_never_elsewhere);
    tcase_add_test(tcase, without_words_who_waited_least_came_last);
    tcase_add_test(tcase, no_more_is_charged_than_this_rank_waited);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
