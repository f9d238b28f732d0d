/* SPDX-License-Identifier: BSD-3-Clause */
/* test_alltoallv.c - every byte of EPX_Alltoallv, counts and displacements too. */
#include <string.h>

#include "support/exchange.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
}

static void open_wide_comm(void)
{
    comm = suite_comm("epx_window_bytes", "4194304", NULL);
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static struct exchange exchange_of(uint64_t seed, EPX_Datatype datatype, int count, int most_rows)
{
    struct exchange x = {.comm = comm, .data = {seed, datatype, count, 0}};

    x.most_rows = most_rows;
    return x;
}

static void run(struct exchange *x)
{
    if (EXPECT_CODE(exchange_start(x), EPX_SUCCESS))
        exchange_finish(x);
    SETTLE();
    exchange_free(x);
    SETTLE();
}

START_TEST(rows_of_every_datatype_arrive_by_source_rank)
{
    struct exchange x = exchange_of(20 + (uint64_t)_i, EPX_BYTE + _i % 7, 19, 8);

    x.gap = _i / 7;
    x.memory = (enum memory)(_i % 3);
    run(&x);
}
END_TEST

static const int lengths[] = {0, 1, 3, 4096, 65535, 65536, 65537, 300001, 524288, 524289, 2000003};

START_TEST(rows_of_any_length_arrive)
{
    struct exchange x = exchange_of(40 + (uint64_t)_i, EPX_BYTE, lengths[_i / 2], 2);

    x.memory = (enum memory)(_i % 3);
    run(&x);
}
END_TEST

START_TEST(many_short_rows_arrive)
{
    struct exchange x = exchange_of(60, EPX_FLOAT16, 33, 3000);

    run(&x);
}
END_TEST

/* Rows that go in packets, and rows that do not. */
START_TEST(rows_are_counted)
{
    struct exchange x = exchange_of(65 + (uint64_t)_i, EPX_FLOAT16, 64 << 9 * _i, 40);
    EPX_Stats before = EPX_STATS_INIT, after = EPX_STATS_INIT;
    const int64_t *counts;
    uint64_t rows = 0, own;

    EXPECT_CODE(EPX_Comm_get_stats(comm, &before), EPX_SUCCESS);
    if (EXPECT_CODE(exchange_start(&x), EPX_SUCCESS))
        exchange_finish(&x);
    counts = x.sendcounts.data;
    for (int r = 0; r < suite_size; r++)
        rows += (uint64_t)counts[r];
    own = (uint64_t)counts[suite_rank];
    EXPECT_CODE(EPX_Comm_get_stats(comm, &after), EPX_SUCCESS);
    EXPECT(after.rows_self - before.rows_self == own, "%llu own rows, not %llu",
           (unsigned long long)(after.rows_self - before.rows_self), (unsigned long long)own);
    EXPECT(after.rows_self + after.rows_node + after.rows_network - before.rows_self -
                   before.rows_node - before.rows_network ==
               rows,
           "not %llu rows in all", (unsigned long long)rows);
    EXPECT(after.bytes_self - before.bytes_self == own * data_row_bytes(&x.data), "own bytes");
    SETTLE();
    exchange_free(&x);
    SETTLE();
}
END_TEST

START_TEST(an_empty_exchange_completes)
{
    struct exchange x = exchange_of(70, EPX_FLOAT32, 5, 0);

    run(&x);
}
END_TEST

/* As many rows as a number can tell, from all ranks together, then from each: only words may move,
 * and displacements end at the largest number. */
START_TEST(rows_of_no_bytes_take_no_time)
{
    const int64_t each = _i ? INT64_MAX : INT64_MAX / suite_size;
    struct exchange x = exchange_of(75, EPX_FLOAT64, 0, 0);
    const struct buffer *arrays[] = {&x.sendcounts, &x.recvcounts, &x.rdispls};

    EXPECT_CODE(exchange_start(&x), EPX_SUCCESS); /* which makes the arrays, of no rows */
    exchange_finish(&x);
    SETTLE();
    for (int r = 0; r < suite_size; r++) {
        ((int64_t *)x.sendcounts.data)[r] = each;
        ((int64_t *)x.recvcounts.expected)[r] = each;
        ((int64_t *)x.rdispls.expected)[r] = _i && r > 0 ? INT64_MAX : r * each;
    }
    buffer_freeze(&x.sendcounts);
    EXPECT_CODE(EPX_Alltoallv(NULL, x.sendcounts.address, x.sdispls.address, NULL,
                              x.recvcounts.address, x.rdispls.address, INT64_MAX, 0, EPX_FLOAT64,
                              comm, EPX_STREAM_NULL, &x.request),
                EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&x.request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    for (int i = 0; i < 3; i++)
        buffer_check(arrays[i], "alltoallv of no bytes");
    SETTLE();
    exchange_free(&x);
    SETTLE();
}
END_TEST

START_TEST(a_rank_without_room_harms_nobody)
{
    struct exchange x = exchange_of(80 + (uint64_t)_i, EPX_FLOAT32, 64 << 4 * _i, 9);

    x.short_rows = _i == 2 ? 1000000 : 1;
    x.memory = (enum memory)_i;
    run(&x);
    layer_works(comm);
}
END_TEST

/* Most have several rounds, the first with more to do than all warps of a GPU begin with. In some
 * the last rank lacks room. */
START_TEST(long_rounds_arrive)
{
    struct exchange x = exchange_of(95 + (uint64_t)_i, EPX_BYTE, 1000000 + _i, 1 + 24 / suite_size);

    x.memory = _i == 1 ? MEMORY_MIXED : MEMORY_MALLOC;
    x.short_rows = _i == 2;
    run(&x);
}
END_TEST

/* Overwrites the counts while they are in use, as a user must not. */
static void forget_counts(struct exchange *x)
{
    struct buffer *arrays[] = {&x->sendcounts, &x->sdispls, &x->recvcounts, &x->rdispls};

    for (int i = 0; i < 4; i++)
        memset(arrays[i]->data, 0, arrays[i]->bytes);
}

/* The rows need many rounds of a stage or ring. */
START_TEST(counts_that_change_under_way_move_no_row)
{
    struct exchange x = exchange_of(90, EPX_BYTE, 5000, 12);
    int flag = 0;

    x.memory = MEMORY_MIXED;
    EXPECT_CODE(exchange_start(&x), EPX_SUCCESS);
    while (!flag) {
        forget_counts(&x);
        EXPECT_CODE(EPX_Test(&x.request, &flag, MPI_STATUS_IGNORE), EPX_SUCCESS);
    }
    buffer_check(&x.recv, "alltoallv: recvbuf");
    SETTLE();
    exchange_free(&x);
    SETTLE();
}
END_TEST

START_TEST(any_exchange_is_exact)
{
    uint64_t seed = 5000 + (uint64_t)_i;
    struct exchange x = exchange_of(seed, EPX_BYTE + data_below(seed, 1, 1, 7),
                                    1 + data_below(seed, 1, 2, 3000), data_below(seed, 1, 3, 20));

    x.gap = data_below(seed, 1, 4, 3);
    x.short_rows = data_below(seed, 1, 5, 3) == 0;
    x.memory = (enum memory)data_below(seed, 1, 6, 3);
    run(&x);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("alltoallv");
    TCase *tcase = tcase_create("alltoallv"), *wide = tcase_create("wide");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, rows_of_every_datatype_arrive_by_source_rank, 0, 14);
    tcase_add_loop_test(tcase, rows_of_any_length_arrive, 0, 22);
    tcase_add_test(tcase, many_short_rows_arrive);
    tcase_add_loop_test(tcase, rows_are_counted, 0, 2);
    tcase_add_test(tcase, an_empty_exchange_completes);
    tcase_add_loop_test(tcase, rows_of_no_bytes_take_no_time, 0, 2);
    tcase_add_loop_test(tcase, a_rank_without_room_harms_nobody, 0, 3);
    if (!space_is_device())
        tcase_add_test(tcase, counts_that_change_under_way_move_no_row);
    tcase_add_loop_test(tcase, any_exchange_is_exact, 0, 40);
    suite_add_tcase(suite, tcase);
    suite_add_fixture(wide, open_wide_comm, close_comm);
    tcase_add_loop_test(wide, long_rounds_arrive, 0, 3);
    suite_add_tcase(suite, wide);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
