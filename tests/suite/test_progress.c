/* SPDX-License-Identifier: BSD-3-Clause */
/* test_progress.c - many operations in flight, completed in any order; calls that do not block. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "support/exchange.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

#define IN_FLIGHT 12

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

enum order { IN_ORDER, REVERSED, RANDOM, OPPOSITE_BY_RANK, ORDERS };

static void make_order(enum order order, int n, int *index)
{
    int reversed = order == REVERSED || (order == OPPOSITE_BY_RANK && suite_rank % 2);

    for (int i = 0; i < n; i++)
        index[i] = reversed ? n - 1 - i : i;
    for (int i = n - 1; order == RANDOM && i > 0; i--) {
        int j = data_below(77, (uint64_t)suite_rank, (uint64_t)i, i + 1), swapped = index[i];

        index[i] = index[j];
        index[j] = swapped;
    }
}

static void start_all(struct operation *ops, int n, struct routing *routings, int num_routings)
{
    for (int i = 0; i < n; i++)
        EXPECT_CODE(operation_start(&ops[i], &routings[i % num_routings],
                                    (enum verb)(i / num_routings % VERBS), (uint64_t)i),
                    EPX_SUCCESS);
}

static void finish_all(struct operation *ops, int n, enum order order)
{
    int index[IN_FLIGHT];

    make_order(order, n, index);
    for (int i = 0; i < n; i++)
        operation_finish(&ops[index[i]]);
    SETTLE();
    for (int i = 0; i < n; i++)
        operation_free(&ops[i]);
}

static void open_layer(struct layer *layer, int i)
{
    struct scenario s = scenario_small(i % 2 ? EPX_BFLOAT16 : EPX_FLOAT32);

    s.layout = i / 2 % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.seed += (uint64_t)i;
    layer_open(layer, &s, comm);
    SETTLE();
}

static void route(struct routing *routing, struct layer *layer, uint64_t seed)
{
    EXPECT_CODE(routing_start(routing, layer, seed), EPX_SUCCESS);
    SETTLE();
}

START_TEST(operations_on_one_route_complete_in_any_order)
{
    struct operation ops[IN_FLIGHT];
    struct routing routing;
    struct layer layer;

    open_layer(&layer, _i);
    route(&routing, &layer, 1);
    start_all(ops, IN_FLIGHT, &routing, 1);
    finish_all(ops, IN_FLIGHT, (enum order)_i);
    routing_finish(&routing);
    SETTLE();
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST

START_TEST(routings_of_one_route_queue_behind_its_operations)
{
    struct operation ops[3][4];
    struct routing routing[3];
    struct layer layer;

    open_layer(&layer, _i);
    for (int i = 0; i < 3; i++) {
        EXPECT_CODE(routing_start(&routing[i], &layer, (uint64_t)i), EPX_SUCCESS);
        start_all(ops[i], 4, &routing[i], 1);
    }
    for (int i = 2; i >= 0; i--)
        finish_all(ops[i], 4, (enum order)_i);
    routing_finish(&routing[2]);
    EXPECT_CODE(EPX_Wait(&routing[1].request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&routing[0].request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    SETTLE();
    for (int i = 0; i < 3; i++)
        routing_free(&routing[i]);
    layer_close(&layer);
}
END_TEST

START_TEST(operations_on_several_routes_complete_in_any_order)
{
    struct operation ops[IN_FLIGHT];
    struct routing routing[3];
    struct layer layer[3];

    for (int i = 0; i < 3; i++) {
        open_layer(&layer[i], i);
        EXPECT_CODE(routing_start(&routing[i], &layer[i], 5), EPX_SUCCESS);
    }
    start_all(ops, IN_FLIGHT, routing, 3);
    finish_all(ops, IN_FLIGHT, (enum order)_i);
    for (int i = 0; i < 3; i++) {
        routing_finish(&routing[i]);
        SETTLE();
        routing_free(&routing[i]);
        layer_close(&layer[i]);
    }
}
END_TEST

START_TEST(several_communicators_work_at_once)
{
    EPX_Comm first = comm, others[3];
    struct operation ops[IN_FLIGHT];
    struct routing routing[3];
    struct layer layer[3];

    for (int i = 0; i < 3; i++) {
        comm = others[i] = suite_comm(NULL);
        open_layer(&layer[i], i);
        EXPECT_CODE(routing_start(&routing[i], &layer[i], 6), EPX_SUCCESS);
    }
    comm = first;
    start_all(ops, IN_FLIGHT, routing, 3);
    finish_all(ops, IN_FLIGHT, (enum order)_i);
    for (int i = 2; i >= 0; i--) {
        routing_finish(&routing[i]);
        routing_free(&routing[i]);
        layer_close(&layer[i]);
        EXPECT_CODE(EPX_Comm_free(&others[i]), EPX_SUCCESS);
    }
    SETTLE();
}
END_TEST

/* Operations with their routing, for the tests of completion. */
struct flight {
    struct layer layer;
    struct routing routing;
    struct operation ops[4];
    EPX_Request requests[6];
};

static void launch(struct flight *f)
{
    open_layer(&f->layer, 0);
    EXPECT_CODE(routing_start(&f->routing, &f->layer, 8), EPX_SUCCESS);
    start_all(f->ops, 4, &f->routing, 1);
    f->requests[0] = f->routing.request;
    f->requests[1] = EPX_REQUEST_NULL;
    for (int i = 0; i < 4; i++)
        f->requests[2 + i] = f->ops[i].request;
    SETTLE();
}

static void land(struct flight *f)
{
    for (int i = 0; i < 6; i++)
        EXPECT(f->requests[i] == EPX_REQUEST_NULL, "request %d is not null", i);
    routing_check(&f->routing);
    for (int i = 0; i < 4; i++)
        operation_check(&f->ops[i]);
    SETTLE();
    for (int i = 0; i < 4; i++)
        operation_free(&f->ops[i]);
    routing_free(&f->routing);
    layer_close(&f->layer);
}

START_TEST(waitall_completes_everything)
{
    MPI_Status statuses[6];
    struct flight f;

    launch(&f);
    EXPECT_CODE(EPX_Waitall(6, f.requests, _i ? MPI_STATUSES_IGNORE : statuses), EPX_SUCCESS);
    if (_i == 0) {
        status_check(&statuses[0], EPX_SUCCESS, f.routing.ref->rank[suite_rank].status_rows);
        status_check(&statuses[1], EPX_SUCCESS, 0);
        for (int i = 0; i < 4; i++)
            status_check(&statuses[2 + i], EPX_SUCCESS, operation_rows(&f.ops[i]));
    }
    land(&f);
}
END_TEST

static int poll_once(struct flight *f, int i)
{
    MPI_Status status;
    int flag = -1;

    EXPECT_CODE(EPX_Test(&f->requests[i], &flag, &status), EPX_SUCCESS);
    EXPECT((f->requests[i] == EPX_REQUEST_NULL) == flag, "flag %d and request disagree", flag);
    if (flag && i >= 2)
        status_check(&status, EPX_SUCCESS, operation_rows(&f->ops[i - 2]));
    return flag == 1;
}

START_TEST(polling_completes_everything)
{
    struct flight f;
    int open = 6, done[6] = {0};

    launch(&f);
    for (int turn = 5; open; turn = (turn + 5) % 6)
        if (!done[turn] && poll_once(&f, turn)) {
            done[turn] = 1;
            open--;
        }
    land(&f);
}
END_TEST

#ifdef CPU_SET
/* Puts this rank on the first of the cores that it may use, where the others are put too. */
static void share_a_core(cpu_set_t *usual)
{
    cpu_set_t one;
    int core = 0;

    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof(*usual), usual);
    while (!CPU_ISSET(core, usual))
        core++;
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
}

/* Routes a number of times, by EPX_Test or by EPX_Wait; returns how long the slowest rank took. */
static double time_routings(struct routing *routing, int polling)
{
    double start, seconds;

    MPI_Barrier(MPI_COMM_WORLD);
    start = suite_seconds();
    for (int i = 0; i < 80; i++) {
        int done = 0;

        EXPECT_CODE(routing_call(routing), EPX_SUCCESS);
        while (polling && !done)
            EXPECT_CODE(EPX_Test(&routing->request, &done, MPI_STATUS_IGNORE), EPX_SUCCESS);
        EXPECT_CODE(EPX_Wait(&routing->request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    }
    seconds = suite_seconds() - start;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

/* A rank that kept the core until the system took it away would cost the others milliseconds at
 * every step. Other programs on the machine may do that as well: so the best of a few tries
 * counts. */
START_TEST(polling_ranks_that_share_a_core_are_not_slower_than_waiting_ones)
{
    struct routing routing;
    struct layer layer;
    cpu_set_t usual;
    double waiting = 1e9, polling = 1e9;

    open_layer(&layer, 0);
    routing_prepare(&routing, &layer, 8);
    share_a_core(&usual);
    for (int i = 0; i < 5; i++) {
        double seconds = time_routings(&routing, 0);

        waiting = seconds < waiting ? seconds : waiting;
        seconds = time_routings(&routing, 1);
        polling = seconds < polling ? seconds : polling;
    }
    sched_setaffinity(0, sizeof(usual), &usual);
    EXPECT(polling < 4 * waiting + .02, "%.4f s by EPX_Test, %.4f s by EPX_Wait", polling, waiting);
    SETTLE();
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST
#endif

/* On the host EPX_Wait_enqueue is EPX_Wait. */
START_TEST(wait_enqueue_orders_what_follows_on_the_stream)
{
    struct flight f;

    launch(&f);
    for (int i = 0; i < 6; i++)
        EXPECT_CODE(EPX_Wait_enqueue(&f.requests[i], EPX_STREAM_NULL), EPX_SUCCESS);
    space_wait_stream(EPX_STREAM_NULL);
    land(&f);
}
END_TEST

START_TEST(null_requests_complete_at_once)
{
    EPX_Request requests[3] = {EPX_REQUEST_NULL, EPX_REQUEST_NULL, EPX_REQUEST_NULL};
    MPI_Status statuses[3];
    int flag = 0;

    EXPECT_CODE(EPX_Wait(&requests[0], &statuses[0]), EPX_SUCCESS);
    status_check(&statuses[0], EPX_SUCCESS, 0);
    EXPECT_CODE(EPX_Test(&requests[0], &flag, &statuses[0]), EPX_SUCCESS);
    EXPECT(flag == 1, "flag %d", flag);
    status_check(&statuses[0], EPX_SUCCESS, 0);
    EXPECT_CODE(EPX_Waitall(3, requests, statuses), EPX_SUCCESS);
    status_check(&statuses[2], EPX_SUCCESS, 0);
    EXPECT_CODE(EPX_Waitall(0, NULL, MPI_STATUSES_IGNORE), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait_enqueue(&requests[1], EPX_STREAM_NULL), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* Rank r may call only after rank r - 1 returned from its call. */
START_TEST(calls_return_before_their_peers_have_called)
{
    struct operation ops[VERBS];
    struct routing routing;
    struct layer layer;
    int token = 0;

    open_layer(&layer, _i);
    if (suite_rank > 0)
        MPI_Recv(&token, 1, MPI_INT, suite_rank - 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT_CODE(routing_start(&routing, &layer, 4), EPX_SUCCESS);
    start_all(ops, VERBS, &routing, 1);
    if (suite_rank < suite_size - 1)
        MPI_Send(&token, 1, MPI_INT, suite_rank + 1, 3, MPI_COMM_WORLD);
    finish_all(ops, VERBS, IN_ORDER);
    routing_finish(&routing);
    SETTLE();
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST

/* The even rank's message is long enough to need the sender while that waits in EPX. */
START_TEST(users_messages_move_while_epx_waits)
{
    const int length = 4 << 20, peer = suite_rank ^ 1;
    char *message = calloc(1, (size_t)length);
    MPI_Request sending = MPI_REQUEST_NULL;
    struct flight f;

    open_layer(&f.layer, 0);
    if (suite_rank % 2 == 0 && peer < suite_size)
        MPI_Isend(message, length, MPI_BYTE, peer, 5, MPI_COMM_WORLD, &sending);
    if (suite_rank % 2)
        MPI_Recv(message, length, MPI_BYTE, peer, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT_CODE(routing_start(&f.routing, &f.layer, 9), EPX_SUCCESS);
    EXPECT_CODE(operation_start(&f.ops[0], &f.routing, DISPATCH, 1), EPX_SUCCESS);
    operation_finish(&f.ops[0]);
    routing_finish(&f.routing);
    MPI_Wait(&sending, MPI_STATUS_IGNORE);
    SETTLE();
    operation_free(&f.ops[0]);
    routing_free(&f.routing);
    layer_close(&f.layer);
    free(message);
}
END_TEST

START_TEST(users_wildcard_receives_catch_nothing_of_epx)
{
    int value = -1, sent = 1000 + suite_rank;
    MPI_Request receiving;
    MPI_Status status;

    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receiving);
    layer_works(comm);
    MPI_Send(&sent, 1, MPI_INT, (suite_rank + 1) % suite_size, 6, MPI_COMM_WORLD);
    MPI_Wait(&receiving, &status);
    EXPECT(value == 1000 + (suite_rank + suite_size - 1) % suite_size && status.MPI_TAG == 6,
           "received %d", value);
    SETTLE();
}
END_TEST

START_TEST(requests_outlive_their_route)
{
    struct operation ops[VERBS];
    struct routing routing;
    struct layer layer;

    open_layer(&layer, 1);
    route(&routing, &layer, 2);
    EXPECT_CODE(EPX_Wait(&routing.request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    start_all(ops, VERBS, &routing, 1);
    layer_close(&layer);
    finish_all(ops, VERBS, REVERSED);
    routing_free(&routing);
}
END_TEST

START_TEST(freeing_a_communicator_completes_what_is_in_flight)
{
    EPX_Comm brief = suite_comm(NULL);
    struct exchange x = {.comm = brief, .data = {3, EPX_FLOAT32, 20000, 0}, .most_rows = 4};

    EXPECT_CODE(exchange_start(&x), EPX_SUCCESS);
    SETTLE();
    EXPECT_CODE(EPX_Comm_free(&brief), EPX_SUCCESS);
    EXPECT(brief == EPX_COMM_NULL, "communicator not nulled");
    exchange_check(&x);
    exchange_finish(&x);
    SETTLE();
    exchange_free(&x);
}
END_TEST

/* Rows arrive in memory that all ranks free meanwhile, and in memory that stays. */
START_TEST(freeing_memory_completes_what_is_in_flight)
{
    struct exchange freed = {.comm = comm, .data = {5, EPX_FLOAT32, 20000, 0}, .most_rows = 4};
    struct exchange kept = freed;

    freed.memory = kept.memory = MEMORY_WINDOW;
    kept.data.seed = 6;
    EXPECT_CODE(exchange_start(&freed), EPX_SUCCESS);
    EXPECT_CODE(exchange_start(&kept), EPX_SUCCESS);
    SETTLE();
    buffer_free(&freed.recv);
    exchange_check(&kept);
    exchange_finish(&freed); /* whose receive buffer is compared no more */
    exchange_finish(&kept);
    SETTLE();
    exchange_free(&freed);
    exchange_free(&kept);
    SETTLE();
}
END_TEST

static int has_thread(EPX_Comm threaded)
{
    char value[MPI_MAX_INFO_VAL + 1] = "";
    MPI_Info used;
    int found;

    EXPECT_CODE(EPX_Comm_get_info(threaded, &used), EPX_SUCCESS);
    MPI_Info_get(used, "epx_progress", MPI_MAX_INFO_VAL, value, &found);
    MPI_Info_free(&used);
    return strcmp(value, "thread") == 0;
}

/* Rank 0 leaves EPX after its calls; the others need it for rows of many chunks. */
static void sleep_on_rank_0(EPX_Comm threaded)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct flight f;
    int token = 0;

    s.tokens = TOKENS_FULL;
    s.count = 60000;
    s.max_tokens = 2;
    layer_open(&f.layer, &s, threaded);
    SETTLE();
    EXPECT_CODE(routing_start(&f.routing, &f.layer, 3), EPX_SUCCESS);
    start_all(f.ops, 2, &f.routing, 1);
    for (int r = 1; suite_rank == 0 && r < suite_size; r++)
        MPI_Recv(&token, 1, MPI_INT, r, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++)
        operation_finish(&f.ops[i]);
    if (suite_rank)
        MPI_Send(&token, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    routing_finish(&f.routing);
    SETTLE();
    for (int i = 0; i < 2; i++)
        operation_free(&f.ops[i]);
    routing_free(&f.routing);
    layer_close(&f.layer);
}

START_TEST(a_progress_thread_answers_for_a_rank_that_does_not_call)
{
    EPX_Comm threaded = suite_comm("epx_progress", "thread", "epx_window_bytes", "65536", NULL);
    int thread = has_thread(threaded);

    EXPECT(thread || strcmp(suite_transport(), "shm") != 0, "shm has no progress thread");
    SETTLE();
    if (thread)
        sleep_on_rank_0(threaded);
    else
        layer_works(threaded);
    EXPECT_CODE(EPX_Comm_free(&threaded), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("progress");
    TCase *tcase = tcase_create("in flight");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, operations_on_one_route_complete_in_any_order, 0, ORDERS);
    tcase_add_loop_test(tcase, routings_of_one_route_queue_behind_its_operations, 0, ORDERS);
    tcase_add_loop_test(tcase, operations_on_several_routes_complete_in_any_order, 0, ORDERS);
    tcase_add_loop_test(tcase, several_communicators_work_at_once, 0, ORDERS);
    tcase_add_loop_test(tcase, waitall_completes_everything, 0, 2);
    tcase_add_test(tcase, polling_completes_everything);
#ifdef CPU_SET
    tcase_add_test(tcase, polling_ranks_that_share_a_core_are_not_slower_than_waiting_ones);
#endif
    tcase_add_test(tcase, wait_enqueue_orders_what_follows_on_the_stream);
    tcase_add_test(tcase, null_requests_complete_at_once);
    tcase_add_loop_test(tcase, calls_return_before_their_peers_have_called, 0, 4);
    tcase_add_test(tcase, users_messages_move_while_epx_waits);
    tcase_add_test(tcase, users_wildcard_receives_catch_nothing_of_epx);
    tcase_add_test(tcase, requests_outlive_their_route);
    tcase_add_test(tcase, freeing_a_communicator_completes_what_is_in_flight);
    tcase_add_test(tcase, freeing_memory_completes_what_is_in_flight);
    tcase_add_test(tcase, a_progress_thread_answers_for_a_rank_that_does_not_call);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
