/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_stats.c - rows by distance, and copies for callers of other versions. */
#include "base/stats.h"

#include <stddef.h>
#include <string.h>

#include "support/suite.h"

START_TEST(rows_count_where_they_went)
{
    EPX_Stats stats = EPX_STATS_INIT;
    const int64_t many = (int64_t)1 << 33;

    epx_stats_count_rows(&stats, EPX_DISTANCE_SELF, 3, 10);
    epx_stats_count_rows(&stats, EPX_DISTANCE_NODE, 5, 100);
    epx_stats_count_rows(&stats, EPX_DISTANCE_NODE, 2, 1);
    epx_stats_count_rows(&stats, EPX_DISTANCE_NETWORK, many, 64);
    ck_assert_uint_eq(stats.rows_self, 3);
    ck_assert_uint_eq(stats.bytes_self, 30);
    ck_assert_uint_eq(stats.rows_node, 7);
    ck_assert_uint_eq(stats.bytes_node, 502);
    ck_assert_uint_eq(stats.rows_network, (uint64_t)many);
    ck_assert_uint_eq(stats.bytes_network, (uint64_t)many * 64);
    ck_assert_uint_eq(stats.calls + stats.dropped_rows + stats.timeouts + stats.host_syncs, 0);
}
END_TEST

static EPX_Stats full_stats(void)
{
    EPX_Stats stats = EPX_STATS_INIT;

    memset(&stats.calls, 0x11, sizeof(stats) - offsetof(EPX_Stats, calls));
    return stats;
}

START_TEST(a_copy_has_every_counter)
{
    EPX_Stats stats = full_stats(), copy = EPX_STATS_INIT;

    ck_assert_int_eq(epx_stats_copy(&stats, &copy), EPX_SUCCESS);
    ck_assert_int_eq(memcmp(&copy, &stats, sizeof(copy)), 0);
}
END_TEST

/* A later version's struct keeps its size, and the members that this version does not know. */
START_TEST(a_longer_struct_is_filled_as_far_as_known)
{
    EPX_Stats stats = full_stats();
    struct {
        EPX_Stats known;
        uint64_t later;
    } copy = {EPX_STATS_INIT, 77};

    copy.known.size = sizeof(copy);
    ck_assert_int_eq(epx_stats_copy(&stats, &copy.known), EPX_SUCCESS);
    ck_assert_uint_eq(copy.known.size, sizeof(copy));
    ck_assert_uint_eq(copy.known.host_syncs, stats.host_syncs);
    ck_assert_uint_eq(copy.later, 77);
}
END_TEST

START_TEST(a_struct_too_short_is_refused_and_left_alone)
{
    EPX_Stats stats = full_stats(), copy = EPX_STATS_INIT;

    copy.size = offsetof(EPX_Stats, messages) - 1; /* the first version ended there */
    ck_assert_int_eq(epx_stats_copy(&stats, &copy), EPX_ERR_ARG);
    ck_assert_uint_eq(copy.calls, 0);
    copy.size = 0;
    ck_assert_int_eq(epx_stats_copy(&stats, &copy), EPX_ERR_ARG);
    ck_assert_int_eq(epx_stats_copy(&stats, NULL), EPX_ERR_ARG);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("stats");
    TCase *tcase = tcase_create("stats");

    tcase_add_test(tcase, rows_count_where_they_went);
    tcase_add_test(tcase, a_copy_has_every_counter);
    tcase_add_test(tcase, a_longer_struct_is_filled_as_far_as_known);
    tcase_add_test(tcase, a_struct_too_short_is_refused_and_left_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
