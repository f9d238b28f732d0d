/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_request.c - the pool of requests, their queue, and what completion leaves behind. */
#include "core/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "core/progress.h"
#include "core/route.h"
#include "support/suite.h"

enum { REQUESTS = 4 };

static struct epx_comm comm;
static struct epx_request *requests[REQUESTS];
static int stepped[REQUESTS], steps_needed[REQUESTS], codes[REQUESTS];
static int order[REQUESTS], num_done;
static int plans_freed;

static void begin(void)
{
    memset(&comm, 0, sizeof(comm));
    memset(stepped, 0, sizeof(stepped));
    memset(codes, 0, sizeof(codes));
    num_done = plans_freed = 0;
    comm.references = 1;
    comm.size = 1;
    comm.by_mpi = 1;
    epx_log_set_level(EPX_LOG_LEVEL_ERROR);
    epx_comm_enlist(&comm);
    for (int i = 0; i < REQUESTS; i++)
        steps_needed[i] = 1;
}

static void end(void)
{
    epx_comm_unlist(&comm);
    epx_comm_take_error(&comm);
    ck_assert_int_eq(comm.references, 1);
}

/* call.row_bytes is the number of the request. */
static int step(struct epx_request *request, int *moved)
{
    int i = (int)request->call.row_bytes;

    *moved = 1;
    if (++stepped[i] < steps_needed[i])
        return EPX_SUCCESS;
    order[num_done++] = i;
    request->complete = 1;
    return codes[i] ? epx_fail(codes[i], "request %d", i) : EPX_SUCCESS;
}

static void submit(int i, struct epx_route *route)
{
    requests[i] = epx_request_create(&comm, route);
    requests[i]->progress = step;
    requests[i]->call.row_bytes = i;
    epx_request_submit(requests[i]);
}

START_TEST(a_freed_request_is_used_again_and_clean)
{
    struct epx_request *first = epx_request_create(&comm, NULL), *second, *fresh;

    ck_assert(epx_handle_is(first, EPX_HANDLE_REQUEST));
    ck_assert_int_eq(comm.references, 2);
    first->phase = 7;
    first->error = EPX_ERR_ARG;
    first->complete = 1;
    strcpy(first->message, "old");
    epx_request_free(first);
    ck_assert_int_eq(comm.references, 1);
    ck_assert(!epx_handle_is(first, EPX_HANDLE_REQUEST));
    second = epx_request_create(&comm, NULL);
    ck_assert_ptr_eq(second, first);
    ck_assert_int_eq(second->phase | second->error | second->complete, 0);
    ck_assert_int_eq(second->waiting_for, -1);
    ck_assert_str_eq(second->message, "");
    fresh = epx_request_create(&comm, NULL);
    ck_assert_ptr_ne(fresh, second);
    epx_request_free(second);
    epx_request_free(fresh);
    epx_request_free(NULL);
    ck_assert(!epx_handle_is(NULL, EPX_HANDLE_REQUEST));
}
END_TEST

/* More requests than the pool keeps; freed in the order made, in the reverse order, from the
 * middle. */
START_TEST(any_number_of_requests_can_be_held_and_freed)
{
    enum { MANY = 700 };
    static struct epx_request *many[MANY];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            many[i] = epx_request_create(&comm, NULL);
        ck_assert_int_eq(comm.references, 1 + MANY);
        for (int i = 0; i < MANY; i++)
            epx_request_free(many[round == 0 ? i : round == 1 ? MANY - 1 - i : i * 333 % MANY]);
        ck_assert_int_eq(comm.references, 1);
    }
}
END_TEST

/* The operation fails and is changed before it is started again. */
START_TEST(a_persistent_request_starts_its_operation_again_clean)
{
    struct epx_request *persistent = epx_request_create(&comm, NULL), *first, *second, *third;

    persistent->persistent = 1;
    persistent->progress = step;
    persistent->call.row_bytes = 2;
    codes[2] = EPX_ERR_ARG;
    first = epx_request_again(persistent);
    ck_assert(!epx_handle_is(first, EPX_HANDLE_REQUEST));
    epx_request_submit(first);
    ck_assert_int_eq(first->error, EPX_ERR_ARG);
    ck_assert_int_eq(epx_request_count(&comm, 0), 1);
    ck_assert_int_eq(epx_request_count(&comm, 1), 1);
    first->call.row_bytes = 3;
    epx_request_done(first);
    ck_assert_int_eq(epx_request_count(&comm, 0), 0);
    second = epx_request_again(persistent);
    ck_assert_ptr_eq(second, first);
    ck_assert_int_eq(second->phase | second->error | second->complete, 0);
    ck_assert_uint_eq(second->epoch, 0);
    ck_assert_int_eq(second->waiting_for, -1);
    ck_assert_int_eq((int)second->call.row_bytes, 2);
    ck_assert_str_eq(second->message, "");
    third = epx_request_again(persistent); /* while the second is left to a stream */
    ck_assert_ptr_ne(third, second);
    second->starter = NULL;
    epx_request_done(second);
    epx_request_done(third);
    ck_assert_int_eq(comm.references, 3);
    epx_request_free(persistent);
    ck_assert_int_eq(comm.references, 1);
    ck_assert_int_eq(epx_request_count(&comm, 1), 0);
}
END_TEST

START_TEST(requests_nobody_waited_for_are_freed_at_the_end)
{
    for (int i = 0; i < 5; i++)
        epx_request_create(&comm, NULL);
    epx_request_free_all_by_mpi();
    ck_assert_int_eq(comm.references, 1);
    epx_request_free_all_by_mpi();
}
END_TEST

START_TEST(only_the_head_of_the_queue_moves)
{
    steps_needed[0] = 4;
    for (int i = 0; i < REQUESTS; i++)
        submit(i, NULL);
    ck_assert_int_eq(num_done, REQUESTS);
    ck_assert_int_eq(stepped[0], 4);
    for (int i = 0; i < REQUESTS; i++) {
        ck_assert_int_eq(order[i], i);
        ck_assert_uint_eq(requests[i]->epoch, (uint64_t)i + 1);
        epx_request_free(requests[i]);
    }
    ck_assert_uint_eq(comm.stats.calls, REQUESTS);
}
END_TEST

START_TEST(later_requests_wait_for_the_head)
{
    steps_needed[0] = 100;
    for (int i = 0; i < REQUESTS; i++)
        submit(i, NULL);
    ck_assert_int_eq(stepped[1] + stepped[2] + stepped[3], 0);
    ck_assert_ptr_eq(comm.first, requests[0]);
    ck_assert_ptr_eq(comm.last, requests[3]);
    while (num_done == 0)
        epx_progress();
    ck_assert_int_eq(stepped[0], 100);
    ck_assert_int_eq(num_done, REQUESTS);
    ck_assert_ptr_null(comm.first);
    ck_assert_ptr_null(comm.last);
    for (int i = 0; i < REQUESTS; i++) {
        ck_assert_int_eq(order[i], i);
        ck_assert(requests[i]->complete && !requests[i]->next);
        epx_request_free(requests[i]);
    }
}
END_TEST

START_TEST(each_request_keeps_its_own_message)
{
    codes[1] = EPX_ERR_COUNT;
    codes[2] = EPX_ERR_TYPE;
    for (int i = 0; i < REQUESTS; i++)
        submit(i, NULL);
    epx_fail(EPX_ERR_ARG, "something else");
    ck_assert_int_eq(requests[0]->error, EPX_SUCCESS);
    ck_assert_int_eq(requests[1]->error, EPX_ERR_COUNT);
    ck_assert_ptr_nonnull(strstr(requests[1]->message, "request 1"));
    ck_assert_int_eq(requests[2]->error, EPX_ERR_TYPE);
    ck_assert_ptr_nonnull(strstr(requests[2]->message, "request 2"));
    ck_assert_str_eq(requests[3]->message, "");
    ck_assert_int_eq(comm.async_error, EPX_ERR_COUNT);
    for (int i = 0; i < REQUESTS; i++)
        epx_request_free(requests[i]);
}
END_TEST

static void free_plan(struct epx_route *route)
{
    (void)route;
    plans_freed++;
}

static struct epx_route *make_route(void)
{
    struct epx_route *route = calloc(1, sizeof(*route));

    route->references = 1;
    route->comm = &comm;
    route->plan_free = free_plan;
    comm.references++;
    return route;
}

/* The route goes when the operation completes, not when the request is freed. */
START_TEST(a_freed_route_goes_with_its_last_operation)
{
    struct epx_route *route = make_route();

    steps_needed[0] = steps_needed[1] = 50;
    submit(0, route);
    submit(1, route);
    ck_assert_int_eq(route->references, 3);
    epx_route_release(route);
    while (!requests[0]->complete)
        epx_progress();
    ck_assert_int_eq(plans_freed, 0);
    ck_assert_ptr_null(requests[0]->route);
    while (!requests[1]->complete)
        epx_progress();
    ck_assert_int_eq(plans_freed, 1);
    ck_assert_ptr_null(requests[1]->route);
    epx_request_free(requests[0]);
    epx_request_free(requests[1]);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("request");
    TCase *tcase = tcase_create("request");

    tcase_add_checked_fixture(tcase, begin, end);
    tcase_add_test(tcase, a_freed_request_is_used_again_and_clean);
    tcase_add_test(tcase, any_number_of_requests_can_be_held_and_freed);
    tcase_add_test(tcase, a_persistent_request_starts_its_operation_again_clean);
    tcase_add_test(tcase, requests_nobody_waited_for_are_freed_at_the_end);
    tcase_add_test(tcase, only_the_head_of_the_queue_moves);
    tcase_add_test(tcase, later_requests_wait_for_the_head);
    tcase_add_test(tcase, each_request_keeps_its_own_message);
    tcase_add_test(tcase, a_freed_route_goes_with_its_last_operation);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
