/* SPDX-License-Identifier: BSD-3-Clause */
/* test_persistent.c - every byte of what EPX_Alltoallv_init and EPX_Start do, however often. */
#define _GNU_SOURCE /* syscall */
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/exchange.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { STARTS = 5, SEVERAL = 5, POLLS = 500, MOST_RANKS = 16 };

static EPX_Comm comm;
static _Thread_local int yields; /* of this thread, to others that want its core */

/* Takes the place of the C library's. */
int sched_yield(void)
{
    yields++;
    return (int)syscall(SYS_sched_yield);
}

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
}

static void close_comm(void)
{
    suite_free_comm(&comm);
}

static struct exchange exchange_of(uint64_t seed, EPX_Datatype datatype, int count, int most_rows)
{
    struct exchange x = {.comm = comm, .data = {seed, datatype, count, 0}};

    x.most_rows = most_rows;
    return x;
}

static void start(struct exchange *x)
{
    if (EXPECT_CODE(EPX_Start(&x->request), EPX_SUCCESS))
        exchange_wait(x);
    SETTLE();
}

static void end(struct exchange *x)
{
    EXPECT_CODE(EPX_Request_free(&x->request), EPX_SUCCESS);
    EXPECT(x->request == EPX_REQUEST_NULL, "request not nulled");
    SETTLE();
    exchange_free(x);
    SETTLE();
}

/* Starts with other rows and counts each time, beginning with those that init saw. */
static void run(struct exchange *x)
{
    EXPECT_CODE(exchange_init(x, 0), EPX_SUCCESS);
    SETTLE();
    for (int i = 0; i < STARTS; i++) {
        if (i)
            exchange_fill(x);
        start(x);
        x->data.seed += 1000;
    }
    end(x);
}

START_TEST(counts_are_read_at_each_start)
{
    struct exchange x = exchange_of(20 + (uint64_t)_i, EPX_BYTE + _i % 7, 19, 8);

    x.gap = _i / 7;
    x.memory = (enum memory)(_i % 3);
    run(&x);
}
END_TEST

static const int lengths[] = {0, 1, 4096, 65537, 300001};

START_TEST(rows_of_any_length_arrive)
{
    struct exchange x = exchange_of(40 + (uint64_t)_i, EPX_BYTE, lengths[_i], 2);

    x.memory = (enum memory)(_i % 3);
    run(&x);
}
END_TEST

/* A persistent request whose counts the user's arrays do not have any more. */
static void init_fixed(struct exchange *x)
{
    struct buffer *arrays[] = {&x->sendcounts, &x->sdispls};

    x->count_seed = x->data.seed;
    EXPECT_CODE(exchange_init(x, EPX_FIXED_COUNTS), EPX_SUCCESS);
    SETTLE();
    space_wait_stream(x->stream);
    for (int i = 0; i < 2; i++) {
        memset(arrays[i]->data, 0xff, arrays[i]->bytes);
        buffer_freeze(arrays[i]);
    }
}

START_TEST(fixed_counts_are_read_once)
{
    struct exchange x = exchange_of(60 + (uint64_t)_i, EPX_FLOAT32, _i < 3 ? 64 : 3000, 12);

    x.gap = _i % 2;
    x.memory = (enum memory)(_i % 3);
    init_fixed(&x);
    for (int i = 0; i < STARTS; i++) {
        x.data.seed += 1000;
        exchange_fill_rows(&x);
        start(&x);
    }
    end(&x);
}
END_TEST

START_TEST(nothing_at_all_is_exchanged)
{
    struct exchange x = exchange_of(70, EPX_FLOAT32, 5 * (_i % 2), 0);

    EXPECT_CODE(exchange_init(&x, _i / 2 ? EPX_FIXED_COUNTS : 0), EPX_SUCCESS);
    for (int i = 0; i < STARTS; i++)
        start(&x);
    end(&x);
}
END_TEST

/* Rows of no bytes are counted, and have no buffers. */
START_TEST(rows_of_no_bytes_need_no_buffer)
{
    int64_t counts[MOST_RANKS], displs[MOST_RANKS] = {0}, came[MOST_RANKS], came_at[MOST_RANKS];
    EPX_Request request;

    if (space_is_device() || suite_size > MOST_RANKS) /* counts lie on the host */
        return;
    for (int r = 0; r < suite_size; r++)
        counts[r] = 10 * suite_rank + r;
    EXPECT_CODE(EPX_Alltoallv_init(NULL, counts, displs, NULL, came, came_at, 10000, 0,
                                   EPX_BYTE + _i / 2, comm, EPX_STREAM_NULL,
                                   _i % 2 ? EPX_FIXED_COUNTS : 0, &request),
                EPX_SUCCESS);
    for (int i = 0; i < STARTS; i++) {
        memset(came, 0, sizeof(came));
        EXPECT_CODE(EPX_Start(&request), EPX_SUCCESS);
        EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
        for (int r = 0; r < suite_size; r++)
            EXPECT(came[r] == 10 * r + suite_rank, "%lld rows from rank %d", (long long)came[r], r);
        SETTLE();
    }
    EXPECT_CODE(EPX_Request_free(&request), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* A thread that asks in turn about a null request and one that waits for others. */
START_TEST(a_null_request_does_not_keep_a_poller_from_yielding)
{
    struct exchange x = exchange_of(90, EPX_BYTE, 8, 1);
    EPX_Request none = EPX_REQUEST_NULL;
    int done = 0, null_done;

    if (suite_size == 1)
        return;
    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    SETTLE();
    if (suite_rank == 0) {
        EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
        yields = 0;
        for (int i = 0; i < POLLS; i++) {
            EXPECT_CODE(EPX_Test(&none, &null_done, MPI_STATUS_IGNORE), EPX_SUCCESS);
            EXPECT_CODE(EPX_Test(&x.request, &done, MPI_STATUS_IGNORE), EPX_SUCCESS);
        }
        EXPECT(!done && yields > 0, "done: %d, yields: %d", done, yields);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank)
        EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
    exchange_wait(&x);
    SETTLE();
    end(&x);
}
END_TEST

START_TEST(a_rank_without_room_may_start_again)
{
    struct exchange x = exchange_of(80 + (uint64_t)_i, EPX_FLOAT32, 64 << 4 * _i, 9);

    x.short_rows = suite_size * x.most_rows / 2;
    x.memory = (enum memory)_i;
    run(&x);
    layer_works(comm);
}
END_TEST

static void init_several(struct exchange *several, EPX_Request *requests)
{
    for (int i = 0; i < SEVERAL; i++) {
        several[i] = exchange_of(100 + (uint64_t)i, EPX_FLOAT16, 30 * i + 1, 7);
        several[i].memory = (enum memory)(i % 3);
        if (i % 2)
            init_fixed(&several[i]);
        else
            EXPECT_CODE(exchange_init(&several[i], 0), EPX_SUCCESS);
        requests[i] = several[i].request;
    }
    SETTLE();
}

static void fill_several(struct exchange *several)
{
    for (int i = 0; i < SEVERAL; i++) {
        several[i].data.seed += 1000;
        if (i % 2)
            exchange_fill_rows(&several[i]);
        else
            exchange_fill(&several[i]);
    }
}

static void check_several(const struct exchange *several, const EPX_Request *requests,
                          const MPI_Status *statuses)
{
    for (int i = 0; i < SEVERAL; i++) {
        status_check(&statuses[i], EPX_SUCCESS, several[i].recv_rows);
        exchange_check(&several[i]);
        EXPECT(requests[i] == several[i].request, "request %d is another one", i);
    }
    SETTLE();
}

START_TEST(several_are_started_together)
{
    struct exchange several[SEVERAL];
    EPX_Request requests[SEVERAL];
    MPI_Status statuses[SEVERAL];

    init_several(several, requests);
    for (int i = 0; i < STARTS; i++) {
        fill_several(several);
        EXPECT_CODE(EPX_Startall(SEVERAL, requests), EPX_SUCCESS);
        EXPECT_CODE(EPX_Waitall(SEVERAL, requests, statuses), EPX_SUCCESS);
        check_several(several, requests, statuses);
    }
    EXPECT_CODE(EPX_Startall(0, NULL), EPX_SUCCESS);
    for (int i = 0; i < SEVERAL; i++)
        end(&several[i]);
}
END_TEST

/* Started in one order, the same on all ranks, and completed in another that differs by rank. */
START_TEST(several_complete_in_any_order)
{
    struct exchange several[SEVERAL];
    EPX_Request requests[SEVERAL];

    init_several(several, requests);
    for (int i = 0; i < STARTS; i++) {
        fill_several(several);
        for (int k = 0; k < SEVERAL; k++)
            EXPECT_CODE(EPX_Start(&several[(i + 2 * k) % SEVERAL].request), EPX_SUCCESS);
        for (int k = 0; k < SEVERAL; k++)
            exchange_wait(&several[(suite_rank + k) % SEVERAL]);
        SETTLE();
    }
    for (int i = 0; i < SEVERAL; i++)
        end(&several[i]);
}
END_TEST

START_TEST(test_completes_it)
{
    struct exchange x = exchange_of(120, EPX_BYTE, 5000, 12);

    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    for (int i = 0; i < STARTS; i++) {
        EPX_Request before = x.request;
        MPI_Status status;
        int flag = 0;

        x.data.seed += 1000;
        exchange_fill(&x);
        EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
        while (!flag)
            EXPECT_CODE(EPX_Test(&x.request, &flag, &status), EPX_SUCCESS);
        EXPECT(x.request == before, "request is another one");
        status_check(&status, EPX_SUCCESS, x.recv_rows);
        exchange_check(&x);
        SETTLE();
    }
    end(&x);
}
END_TEST

static void expect_empty(const MPI_Status *status)
{
    status_check(status, EPX_SUCCESS, 0);
    EXPECT(status->MPI_SOURCE == MPI_ANY_SOURCE, "MPI_SOURCE is %d", status->MPI_SOURCE);
    EXPECT(status->MPI_TAG == MPI_ANY_TAG, "MPI_TAG is %d", status->MPI_TAG);
}

static void complete_inactive(EPX_Request *request)
{
    EPX_Request before = *request;
    MPI_Status status;
    int flag = 0;

    EXPECT_CODE(EPX_Wait(request, &status), EPX_SUCCESS);
    expect_empty(&status);
    EXPECT_CODE(EPX_Test(request, &flag, &status), EPX_SUCCESS);
    EXPECT(flag == 1, "an inactive request is not complete");
    expect_empty(&status);
    EXPECT_CODE(EPX_Waitall(1, request, &status), EPX_SUCCESS);
    expect_empty(&status);
    EXPECT_CODE(EPX_Wait_enqueue(request, EPX_STREAM_NULL), EPX_SUCCESS);
    EXPECT(*request == before, "request is another one");
}

START_TEST(an_inactive_request_completes_at_once)
{
    struct exchange x = exchange_of(130, EPX_FLOAT64, 8, 5);

    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    complete_inactive(&x.request);
    start(&x);
    complete_inactive(&x.request);
    end(&x);
}
END_TEST

/* What Startall, Start and Request_free refuse of a request that is active. */
static void misuse_active(struct exchange *x, struct exchange *other)
{
    EPX_Request both[] = {other->request, x->request};

    EXPECT_CODE(EPX_Start(&x->request), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Request_free(&x->request), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Startall(2, both), EPX_ERR_REQUEST);
}

START_TEST(an_active_request_is_neither_started_nor_freed)
{
    struct exchange x = exchange_of(140, EPX_BYTE, 3000, 12);
    struct exchange other = exchange_of(141, EPX_FLOAT16, 7, 12);

    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    EXPECT_CODE(exchange_init(&other, EPX_FIXED_COUNTS), EPX_SUCCESS);
    EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
    misuse_active(&x, &other);
    exchange_wait(&x);
    SETTLE();
    start(&other);
    x.data.seed++;
    exchange_fill(&x);
    start(&x);
    end(&other);
    end(&x);
}
END_TEST

static void misuse_handles(struct exchange *x)
{
    EPX_Request none = EPX_REQUEST_NULL, twice[] = {x->request, x->request};

    EXPECT_CODE(EPX_Start(NULL), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Start(&none), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Request_free(NULL), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Request_free(&none), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Startall(-1, twice), EPX_ERR_COUNT);
    EXPECT_CODE(EPX_Startall(1, NULL), EPX_ERR_ARG);
    EXPECT_CODE(EPX_Startall(1, &none), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Startall(2, twice), EPX_ERR_REQUEST);
}

START_TEST(only_persistent_requests_are_started_and_freed)
{
    struct exchange x = exchange_of(150, EPX_BYTE, 300, 12), plain = x;
    EPX_Request copy;

    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    misuse_handles(&x);
    EXPECT_CODE(exchange_start(&plain), EPX_SUCCESS);
    EXPECT_CODE(EPX_Start(&plain.request), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Request_free(&plain.request), EPX_ERR_REQUEST);
    exchange_finish(&plain);
    SETTLE();
    exchange_free(&plain);
    start(&x);
    copy = x.request;
    end(&x);
    EXPECT_CODE(EPX_Start(&copy), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Request_free(&copy), EPX_ERR_REQUEST);
    SETTLE();
}
END_TEST

static int init_with(const struct exchange *x, const int64_t *counts, int flags,
                     EPX_Request *request)
{
    return EPX_Alltoallv_init(x->send.address, counts, x->sdispls.address, x->recv.address,
                              x->recvcounts.address, x->rdispls.address, x->recv_capacity,
                              x->data.count, x->data.datatype, x->comm, EPX_STREAM_NULL, flags,
                              request);
}

START_TEST(wrong_arguments_make_no_request)
{
    struct exchange x = exchange_of(160, EPX_BYTE, 300, 12);
    EPX_Request request = EPX_REQUEST_NULL;

    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    EXPECT_CODE(init_with(&x, x.sendcounts.address, 2, &request), EPX_ERR_ARG);
    EXPECT_CODE(init_with(&x, x.sendcounts.address, -1, &request), EPX_ERR_ARG);
    EXPECT_CODE(init_with(&x, NULL, 0, &request), EPX_ERR_ARG);
    EXPECT_CODE(init_with(&x, x.sendcounts.address, 0, NULL), EPX_ERR_ARG);
    EXPECT_CODE(init_with(&x, x.recvcounts.address, 0, &request), EPX_ERR_BUFFER);
    x.recv_capacity = -1;
    EXPECT_CODE(init_with(&x, x.sendcounts.address, 0, &request), EPX_ERR_COUNT);
    EXPECT(request == EPX_REQUEST_NULL, "a call that failed made a request");
    SETTLE();
    end(&x);
}
END_TEST

/* On the host, where calls check counts: init does if they are fixed, else the start does. */
START_TEST(a_wrong_count_starts_nothing)
{
    struct exchange x = exchange_of(170, EPX_BYTE, 300, 12);
    EPX_Request request = EPX_REQUEST_NULL, list[2];
    int64_t *counts;

    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    counts = x.sendcounts.data;
    counts[0] = -1;
    EXPECT_CODE(init_with(&x, counts, EPX_FIXED_COUNTS, &request), EPX_ERR_COUNT);
    EXPECT_CODE(EPX_Start(&x.request), EPX_ERR_COUNT);
    EXPECT_CODE(init_with(&x, counts, 0, &request), EPX_SUCCESS);
    list[0] = request;
    list[1] = x.request;
    EXPECT_CODE(EPX_Startall(2, list), EPX_ERR_COUNT);
    EXPECT_CODE(EPX_Request_free(&request), EPX_SUCCESS);
    complete_inactive(&x.request);
    exchange_fill(&x);
    start(&x);
    end(&x);
}
END_TEST

/* Rank 0 starts another request than all others. */
START_TEST(starts_that_do_not_match_fail_on_all_ranks)
{
    struct exchange wide = exchange_of(180, EPX_BYTE, 300, 12);
    struct exchange narrow = exchange_of(181, EPX_BYTE, 200, 12);
    struct exchange *mine = suite_rank ? &wide : &narrow;

    EXPECT_CODE(exchange_init(&wide, 0), EPX_SUCCESS);
    EXPECT_CODE(exchange_init(&narrow, EPX_FIXED_COUNTS), EPX_SUCCESS);
    EXPECT_CODE(EPX_Start(&mine->request), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&mine->request, MPI_STATUS_IGNORE),
                suite_size > 1 ? EPX_ERR_ARG : EPX_SUCCESS);
    SETTLE();
    exchange_fill(&wide);
    exchange_fill(&narrow);
    start(&wide);
    start(&narrow);
    end(&wide);
    end(&narrow);
}
END_TEST

START_TEST(other_operations_run_between)
{
    struct exchange x = exchange_of(190, EPX_FLOAT32, 700, 12);
    struct exchange plain = exchange_of(191, EPX_FLOAT32, 700, 12);

    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
    EXPECT_CODE(exchange_start(&plain), EPX_SUCCESS);
    layer_works(comm);
    exchange_finish(&plain);
    exchange_wait(&x);
    SETTLE();
    exchange_free(&plain);
    end(&x);
}
END_TEST

/* The operations may still be in flight on a GPU when the next is started and the request is
 * freed. */
START_TEST(a_stream_waits_for_it)
{
    struct exchange x = exchange_of(200 + (uint64_t)_i, EPX_BYTE, 3000, 12);

    if (_i)
        init_fixed(&x);
    else
        EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    for (int i = 0; i < STARTS; i++) {
        EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
        EXPECT_CODE(EPX_Wait_enqueue(&x.request, EPX_STREAM_NULL), EPX_SUCCESS);
        EXPECT(x.request != EPX_REQUEST_NULL, "a persistent request was nulled");
    }
    EXPECT_CODE(EPX_Request_free(&x.request), EPX_SUCCESS);
    space_wait_stream(EPX_STREAM_NULL);
    exchange_check(&x);
    SETTLE();
    exchange_free(&x);
    layer_works(comm);
}
END_TEST

/* Some requests, made and freed in turn, so that memory of fixed counts is used again. */
START_TEST(requests_come_and_go)
{
    for (int i = 0; i < 8; i++) {
        struct exchange x = exchange_of(210 + (uint64_t)i, EPX_FLOAT16, 50, 10);

        init_fixed(&x);
        start(&x);
        end(&x);
    }
}
END_TEST

START_TEST(it_outlives_its_communicator)
{
    EPX_Comm own = suite_comm(NULL);
    struct exchange x = exchange_of(220 + (uint64_t)_i, EPX_BYTE, 300, 12), idle = x;

    x.comm = idle.comm = own;
    EXPECT_CODE(exchange_init(&idle, EPX_FIXED_COUNTS), EPX_SUCCESS);
    EXPECT_CODE(exchange_init(&x, _i ? EPX_FIXED_COUNTS : 0), EPX_SUCCESS);
    EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&own), EPX_SUCCESS);
    SETTLE();
    EXPECT_CODE(EPX_Start(&x.request), EPX_ERR_REQUEST);
    exchange_wait(&x);
    EXPECT_CODE(EPX_Start(&x.request), EPX_ERR_COMM);
    EXPECT_CODE(EPX_Start(&idle.request), EPX_ERR_COMM);
    complete_inactive(&x.request);
    end(&idle);
    end(&x);
}
END_TEST

/* Returns the code of the start, or of the operation. */
static int start_and_wait(EPX_Request *request)
{
    int code = EPX_Start(request);

    return code == EPX_SUCCESS ? EPX_Wait(request, MPI_STATUS_IGNORE) : code;
}

/* The last rank comes when the others have given it up. */
START_TEST(after_a_time_out_every_start_fails)
{
    EPX_Comm own = suite_comm("epx_timeout_ms", "600", NULL);
    struct exchange x = exchange_of(230, EPX_BYTE, 300, 12);

    x.comm = own;
    EXPECT_CODE(exchange_init(&x, EPX_FIXED_COUNTS), EPX_SUCCESS);
    SETTLE();
    if (suite_rank == suite_size - 1)
        suite_sleep_ms(4000);
    for (int i = 0; i < 3; i++)
        EXPECT_CODE(start_and_wait(&x.request), suite_size > 1 ? EPX_ERR_TIMEOUT : EPX_SUCCESS);
    complete_inactive(&x.request);
    EXPECT_CODE(EPX_Request_free(&x.request), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&own), EPX_SUCCESS);
    SETTLE();
    exchange_free(&x);
}
END_TEST

START_TEST(any_exchange_is_exact)
{
    uint64_t seed = 5000 + (uint64_t)_i;
    struct exchange x = exchange_of(seed, EPX_BYTE + data_below(seed, 1, 1, 7),
                                    1 + data_below(seed, 1, 2, 3000), data_below(seed, 1, 3, 20));

    x.gap = data_below(seed, 1, 4, 3);
    x.short_rows = data_below(seed, 1, 5, 3) == 0 ? suite_size * x.most_rows / 2 : 0;
    x.memory = (enum memory)data_below(seed, 1, 6, 3);
    run(&x);
}
END_TEST

static void add_faults(TCase *tcase)
{
    tcase_add_test(tcase, an_active_request_is_neither_started_nor_freed);
    tcase_add_test(tcase, only_persistent_requests_are_started_and_freed);
    tcase_add_test(tcase, wrong_arguments_make_no_request);
    if (!space_is_device())
        tcase_add_test(tcase, a_wrong_count_starts_nothing);
    tcase_add_test(tcase, starts_that_do_not_match_fail_on_all_ranks);
    tcase_add_loop_test(tcase, it_outlives_its_communicator, 0, 2);
    tcase_add_test(tcase, after_a_time_out_every_start_fails);
}

static Suite *make_suite(void)
{
    Suite *suite = suite_create("persistent");
    TCase *tcase = tcase_create("persistent");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, counts_are_read_at_each_start, 0, 14);
    tcase_add_loop_test(tcase, rows_of_any_length_arrive, 0, 5);
    tcase_add_loop_test(tcase, fixed_counts_are_read_once, 0, 6);
    tcase_add_loop_test(tcase, nothing_at_all_is_exchanged, 0, 4);
    tcase_add_loop_test(tcase, rows_of_no_bytes_need_no_buffer, 0, 14);
    tcase_add_test(tcase, a_null_request_does_not_keep_a_poller_from_yielding);
    tcase_add_loop_test(tcase, a_rank_without_room_may_start_again, 0, 3);
    tcase_add_test(tcase, several_are_started_together);
    tcase_add_test(tcase, several_complete_in_any_order);
    tcase_add_test(tcase, test_completes_it);
    tcase_add_test(tcase, an_inactive_request_completes_at_once);
    tcase_add_test(tcase, other_operations_run_between);
    tcase_add_loop_test(tcase, a_stream_waits_for_it, 0, 2);
    tcase_add_test(tcase, requests_come_and_go);
    tcase_add_loop_test(tcase, any_exchange_is_exact, 0, 10);
    add_faults(tcase);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
