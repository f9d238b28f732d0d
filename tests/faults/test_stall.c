/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stall.c - a rank that is late within the bound is waited for; past the bound it is named. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/exchange.h"
#include "support/fault.h"
#include "support/operation.h"
#include "support/suite.h"

static struct scenario long_rows(void)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.tokens = TOKENS_FULL;
    s.max_tokens = 2;
    s.count = 100000;
    return s;
}

/* The sleeper is late for the call, or leaves in the middle of the operation. */
START_TEST(a_rank_late_within_the_bound_is_waited_for)
{
    EPX_Comm comm = suite_comm("epx_timeout_ms", "2000", "epx_window_bytes", "65536", NULL);
    struct scenario s = long_rows();
    struct routing routing;
    struct operation op;
    struct layer layer;
    int flag, sleeper = _i % 2 ? suite_size - 1 : 0;

    layer_open(&layer, &s, comm);
    SETTLE();
    EXPECT_CODE(routing_start(&routing, &layer, 1), EPX_SUCCESS);
    routing_finish(&routing);
    SETTLE();
    if (_i < 2 && suite_rank == sleeper)
        suite_sleep_ms(1000);
    EXPECT_CODE(operation_start(&op, &routing, DISPATCH, 2), EPX_SUCCESS);
    if (_i >= 2 && suite_rank == sleeper && op.request != EPX_REQUEST_NULL)
        suite_sleep_ms(1000);
    operation_finish(&op);
    EXPECT_CODE(EPX_Comm_get_async_error(comm, &flag), EPX_SUCCESS);
    EXPECT(flag == EPX_SUCCESS, "error %d", flag);
    SETTLE();
    operation_free(&op);
    routing_free(&routing);
    layer_close(&layer);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static int names_rank(EPX_Comm comm, int rank)
{
    char text[32];

    snprintf(text, sizeof(text), "rank %d ", rank);
    return fault_message_has(comm, text);
}

/* Expects everything on a finished communicator to complete at once with one message, and free to
 * be local. */
static void expect_finished(EPX_Comm comm, struct layer *layer, struct exchange *later)
{
    double start = suite_seconds();
    char first[EPX_MAX_ERROR_STRING], second[EPX_MAX_ERROR_STRING];
    EPX_Stats stats = EPX_STATS_INIT;
    void *base;
    int length, code;

    EXPECT_CODE(EPX_Comm_get_error_message(comm, first, &length), EPX_SUCCESS);
    code = exchange_start(later);
    if (code == EPX_SUCCESS)
        code = EPX_Wait(&later->request, MPI_STATUS_IGNORE);
    EXPECT(code == EPX_ERR_TIMEOUT, "a later operation gave %d", code);
    EXPECT_CODE(EPX_Alloc_mem(64, comm, &base), EPX_ERR_TIMEOUT);
    EXPECT_CODE(EPX_Comm_get_error_message(comm, second, &length), EPX_SUCCESS);
    EXPECT(strcmp(first, second) == 0, "\"%s\" became \"%s\"", first, second);
    EXPECT_CODE(EPX_Comm_get_stats(comm, &stats), EPX_SUCCESS);
    EXPECT(stats.timeouts > 0, "no time-out counted");
    EXPECT_CODE(EPX_Route_free(&layer->route), EPX_SUCCESS);
    EXPECT(suite_seconds() - start < 1, "took %.1f s", suite_seconds() - start);
}

static void free_after_all_were_waited_for(EPX_Comm *comm)
{
    struct capture capture;
    char text[4096];

    capture_begin(&capture);
    EXPECT_CODE(EPX_Comm_free(comm), EPX_SUCCESS);
    capture_end(&capture, text, sizeof(text));
    EXPECT(capture_count(text, "never waited for") == 0, "\"%s\"", text);
}

START_TEST(a_rank_late_past_the_bound_is_named_to_all)
{
    EPX_Comm comm = suite_comm("epx_timeout_ms", "600", NULL);
    struct exchange later = {.comm = comm, .data = {5, EPX_BYTE, 16, 0}, .most_rows = 3};
    struct scenario s = scenario_small(EPX_FLOAT32);
    int sleeper = _i ? suite_size - 1 : 0, code = -1;
    struct operation op[3];
    struct routing routing;
    struct layer layer;

    layer_open(&layer, &s, comm);
    SETTLE();
    EXPECT_CODE(routing_start(&routing, &layer, 1), EPX_SUCCESS);
    routing_finish(&routing);
    SETTLE();
    if (suite_rank == sleeper)
        suite_sleep_ms(4000);
    for (int i = 0; i < 3; i++)
        if (operation_start(&op[i], &routing, (enum verb)i, 2) != EPX_SUCCESS)
            EXPECT(suite_rank == sleeper, "a call in time was refused");
    for (int i = 0; i < 3; i++)
        if (op[i].request != EPX_REQUEST_NULL)
            EXPECT_CODE(EPX_Wait(&op[i].request, MPI_STATUS_IGNORE), EPX_ERR_TIMEOUT);
    EXPECT_CODE(EPX_Comm_get_async_error(comm, &code), EPX_SUCCESS);
    EXPECT(code == EPX_ERR_TIMEOUT, "async error %d", code);
    names_rank(comm, sleeper);
    expect_finished(comm, &layer, &later);
    exchange_free(&later);
    for (int i = 0; i < 3; i++)
        operation_free(&op[i]);
    routing_free(&routing);
    free(layer.recv_capacity);
    free_after_all_were_waited_for(&comm);
    SETTLE();
    comm = suite_comm(NULL);
    layer_works(comm);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* The sleeper is late for the call. The others say once for whom they wait. */
START_TEST(a_long_wait_is_told_once)
{
    EPX_Comm comm = suite_comm("epx_warn_ms", "200", NULL);
    struct exchange x = {.comm = comm, .data = {5, EPX_BYTE, 16, 0}, .most_rows = 3};
    int sleeper = _i ? suite_size - 1 : 0, told;
    struct capture capture;
    char text[8192], wanted[96];

    if (suite_rank == sleeper)
        suite_sleep_ms(1000);
    capture_begin(&capture);
    EXPECT_CODE(exchange_start(&x), EPX_SUCCESS);
    exchange_finish(&x);
    capture_end(&capture, text, sizeof(text));
    snprintf(wanted, sizeof(wanted), "EPX_Alltoallv: has waited more than 200 ms for rank %d\n",
             sleeper);
    told = capture_count(text, wanted);
    EXPECT(told == (suite_rank != sleeper), "told %d times in \"%s\"", told, text);
    SETTLE();
    exchange_free(&x);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("stall");
    TCase *tcase = tcase_create("stall");

    tcase_add_loop_test(tcase, a_rank_late_within_the_bound_is_waited_for, 0, 4);
    tcase_add_loop_test(tcase, a_rank_late_past_the_bound_is_named_to_all, 0, 2);
    tcase_add_loop_test(tcase, a_long_wait_is_told_once, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
