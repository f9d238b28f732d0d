/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_faults.c - errors that only show when the ranks meet: what differs across ranks, bad
 * ids, overflow. Each is reported once, on the right ranks, and leaves the communicator usable.
 */
#include <string.h>

#include "support/exchange.h"
#include "support/fault.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

static EPX_Comm comm;
static struct layer layer;
static struct routing routing;
static struct buffer home, slots;
static EPX_Request request;

static void open_layer(void)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    comm = suite_comm(NULL);
    fault_watch(comm);
    s.tokens = TOKENS_FULL;
    layer_open(&layer, &s, comm);
    SETTLE();
    EXPECT_CODE(routing_start(&routing, &layer, 1), EPX_SUCCESS);
    routing_finish(&routing);
    buffer_create(&home, (size_t)s.max_tokens * scenario_row_bytes(&s), 4, MEMORY_MALLOC, comm);
    buffer_create(&slots, (size_t)layer.view.capacity * scenario_row_bytes(&s), 4, MEMORY_WINDOW,
                  comm);
    SETTLE();
}

/* Checks that nothing was stored, and that the communicator and its routes still work. */
static void close_layer(void)
{
    buffer_check(&home, "rows at home");
    buffer_check(&slots, "rows at the experts");
    layer_works(comm);
    buffer_free(&home);
    buffer_free(&slots);
    routing_free(&routing);
    layer_close(&layer);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static int dispatch(int count, const float *weights, EPX_Route route)
{
    return EPX_Dispatch(home.address, weights, slots.address, NULL, count, EPX_FLOAT32, route,
                        EPX_STREAM_NULL, &request);
}

static int combine(int count, EPX_Route route)
{
    return EPX_Combine(slots.address, NULL, home.address, count, EPX_FLOAT32, route,
                       EPX_STREAM_NULL, &request);
}

static void expect_refused_everywhere(int started)
{
    EXPECT_CODE(started, EPX_SUCCESS);
    SETTLE();
    EXPECT_FAULT(comm, EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_ERR_ARG);
    EXPECT(request == EPX_REQUEST_NULL, "request not nulled");
    SETTLE();
}

/* The rank that differs: the first, the last, or one in the middle. */
static int odd_rank(int i)
{
    const int ranks[] = {0, suite_size - 1, suite_size / 2};

    return ranks[i % 3];
}

START_TEST(rows_must_be_of_one_length)
{
    int odd = odd_rank(_i) == suite_rank;

    expect_refused_everywhere(dispatch(odd ? 9 : 10, NULL, layer.route));
    expect_refused_everywhere(combine(odd ? 9 : 10, layer.route));
}
END_TEST

START_TEST(weights_are_given_on_all_ranks_or_none)
{
    float *weights = space_alloc(4096 * sizeof(*weights));
    int odd = odd_rank(_i) == suite_rank;

    expect_refused_everywhere(dispatch(10, odd ? NULL : weights, layer.route));
    expect_refused_everywhere(dispatch(10, odd ? weights : NULL, layer.route));
    space_free(weights);
}
END_TEST

START_TEST(ranks_must_call_the_same_operation)
{
    int odd = odd_rank(_i) == suite_rank;

    expect_refused_everywhere(odd ? dispatch(10, NULL, layer.route) : combine(10, layer.route));
}
END_TEST

START_TEST(ranks_must_call_on_the_same_route)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct routing other_routing;
    struct layer other;
    int odd = odd_rank(_i) == suite_rank;

    layer_open(&other, &s, comm);
    SETTLE();
    EXPECT_CODE(routing_start(&other_routing, &other, 1), EPX_SUCCESS);
    routing_finish(&other_routing);
    expect_refused_everywhere(dispatch(10, NULL, odd ? other.route : layer.route));
    routing_free(&other_routing);
    layer_close(&other);
}
END_TEST

START_TEST(exchanges_must_have_rows_of_one_length)
{
    struct exchange x = {.comm = comm, .data = {5, EPX_FLOAT32, 16, 0}, .most_rows = 3};
    int code;

    x.data.count += odd_rank(_i) == suite_rank;
    code = exchange_start(&x);
    request = x.request;
    expect_refused_everywhere(code);
    exchange_free(&x);
}
END_TEST

static EPX_Route_attr odd_attr(int i, const char **name)
{
    static const char *const names[] = {"num_experts", "top_k",  "max_tokens",
                                        "alignment",   "layout", "max_row_bytes",
                                        "overflow",    "layout", "rows_per_expert"};
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;

    attr.num_experts = 8;
    attr.top_k = 2;
    attr.max_tokens = 4;
    attr.layout = i == 8 ? EPX_EXPERT_SLAB : EPX_EXPERT_MAJOR;
    attr.rows_per_expert = i == 8 ? 4 : 0;
    *name = names[i];
    if (odd_rank(i) != suite_rank)
        return attr;
    attr.num_experts += i == 0;
    attr.top_k += i == 1;
    attr.max_tokens += i == 2;
    attr.alignment += i == 3;
    attr.layout = i == 4 ? EPX_RANK_MAJOR : i == 7 ? EPX_EXPERT_SLAB : attr.layout;
    attr.rows_per_expert += i >= 7;
    attr.max_row_bytes += 4096 * (i == 5);
    attr.overflow = i == 6 ? EPX_OVERFLOW_DROP : EPX_OVERFLOW_ERROR;
    return attr;
}

START_TEST(attributes_must_agree)
{
    EPX_Route route = EPX_ROUTE_NULL;
    const char *name;
    EPX_Route_attr attr = odd_attr(_i, &name);

    EXPECT_FAULT(comm, EPX_Route_create(&attr, comm, &route), EPX_ERR_ARG);
    EXPECT(route == EPX_ROUTE_NULL, "an output was written");
    fault_message_has(comm, name);
    SETTLE();
}
END_TEST

START_TEST(hints_must_agree)
{
    int odd = odd_rank(_i) == suite_rank;
    MPI_Info info = suite_info("epx_window_bytes", odd ? "65536" : "131072", NULL);
    EPX_Comm other = EPX_COMM_NULL;

    EXPECT_CODE(EPX_Comm_create(MPI_COMM_WORLD, info, &other), EPX_ERR_ARG);
    EXPECT(other == EPX_COMM_NULL, "an output was written");
    MPI_Info_set(info, "epx_window_bytes", odd ? "many" : "131072");
    EXPECT_CODE(EPX_Comm_create(MPI_COMM_WORLD, info, &other), EPX_ERR_INFO);
    MPI_Info_free(&info);
    SETTLE();
}
END_TEST

static void open_scenario(struct layer *other, struct routing *r, const struct scenario *s)
{
    layer_open(other, s, comm);
    SETTLE();
    EXPECT_CODE(routing_start(r, other, s->seed), EPX_SUCCESS);
    SETTLE();
}

START_TEST(a_bad_id_calls_the_error_handler_once)
{
    struct scenario s = scenario_edge(10);
    struct routing bad;
    struct layer other;
    int wanted;

    s.tokens = TOKENS_FULL;
    open_scenario(&other, &bad, &s);
    wanted = routing_code(&bad);
    if (wanted)
        EXPECT_FAULT(comm, EPX_Wait(&bad.request, MPI_STATUS_IGNORE), wanted);
    else
        EXPECT_UNTOLD(EPX_Wait(&bad.request, MPI_STATUS_IGNORE), wanted);
    routing_check(&bad);
    SETTLE();
    routing_free(&bad);
    layer_close(&other);
}
END_TEST

START_TEST(ids_of_32_bits_given_for_64_are_recognised)
{
    int32_t image[4] = {1, 0, 1, 1};
    int32_t *ids = space_alloc(sizeof(image));
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;

    space_put(ids, image, sizeof(image));
    attr.num_experts = 2 * suite_size;
    attr.top_k = 1;
    attr.max_tokens = 2;
    EXPECT_CODE(EPX_Route_create(&attr, comm, &route), EPX_SUCCESS);
    EXPECT_CODE(EPX_Route_tokens(ids, 2, route, EPX_STREAM_NULL, &request), EPX_SUCCESS);
    EXPECT_FAULT(comm, EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_ERR_ARG);
    fault_message_has(comm, "index_bits is 64");
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
    SETTLE();
    space_free(ids);
}
END_TEST

START_TEST(requests_nobody_waited_for_are_counted)
{
    EPX_Comm other = suite_comm(NULL);
    struct exchange x = {.comm = other, .data = {5, EPX_BYTE, 16, 0}, .most_rows = 3};
    struct capture capture;
    char text[4096];

    EXPECT_CODE(exchange_start(&x), EPX_SUCCESS);
    capture_begin(&capture);
    EXPECT_CODE(EPX_Comm_free(&other), EPX_SUCCESS);
    capture_end(&capture, text, sizeof(text));
    EXPECT(capture_count(text, "requests that were never waited for: 1") == 1, "\"%s\"", text);
    EXPECT_CODE(EPX_Wait(&x.request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    exchange_check(&x);
    SETTLE();
    exchange_free(&x);
}
END_TEST

START_TEST(an_overflow_calls_the_error_handler_once_an_operation)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct routing full;
    struct layer other;
    int flag = 0;

    s.tokens = TOKENS_FULL;
    s.capacity_percent = 50;
    open_scenario(&other, &full, &s);
    EXPECT(full.ref->truncated, "the test does not overflow");
    EXPECT_FAULT(comm, EPX_Wait(&full.request, MPI_STATUS_IGNORE), EPX_ERR_TRUNCATE);
    fault_message_has(comm, "recv_capacity");
    fault_message_has(comm, "EPX_OVERFLOW_DROP");
    EXPECT_CODE(dispatch(10, NULL, other.route), EPX_SUCCESS);
    EXPECT_FAULT(comm, EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_ERR_TRUNCATE);
    EXPECT_CODE(combine(10, other.route), EPX_SUCCESS);
    for (fault_begin(); request != EPX_REQUEST_NULL && !flag;) {
        int code = EPX_Test(&request, &flag, MPI_STATUS_IGNORE);

        if (flag)
            fault_end(__FILE__, __LINE__, "EPX_Test", code, EPX_ERR_TRUNCATE, comm);
    }
    EXPECT(flag == 1, "flag %d", flag);
    SETTLE();
    routing_free(&full);
    layer_close(&other);
}
END_TEST

START_TEST(waitall_tells_which_operation_failed)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    MPI_Status statuses[3];
    EPX_Request requests[3];
    struct exchange good = {.comm = comm, .data = {5, EPX_BYTE, 16, 0}, .most_rows = 3};
    struct routing full;
    struct layer other;

    s.tokens = TOKENS_FULL;
    s.capacity_percent = 50;
    open_scenario(&other, &full, &s);
    EXPECT_CODE(exchange_start(&good), EPX_SUCCESS);
    requests[0] = good.request;
    requests[1] = EPX_REQUEST_NULL;
    requests[2] = full.request;
    fault_begin();
    EXPECT_CODE(EPX_Waitall(3, requests, _i ? MPI_STATUSES_IGNORE : statuses), EPX_ERR_IN_STATUS);
    fault_end(__FILE__, __LINE__, "EPX_Waitall", EPX_ERR_TRUNCATE, EPX_ERR_TRUNCATE, comm);
    for (int i = 0; i < 3; i++)
        EXPECT(requests[i] == EPX_REQUEST_NULL, "request %d not nulled", i);
    if (_i == 0) {
        status_check(&statuses[0], EPX_SUCCESS, good.recv_rows);
        status_check(&statuses[1], EPX_SUCCESS, 0);
        status_check(&statuses[2], EPX_ERR_TRUNCATE, 0);
    }
    exchange_check(&good);
    SETTLE();
    exchange_free(&good);
    routing_free(&full);
    layer_close(&other);
}
END_TEST

START_TEST(an_async_error_is_read_once_with_its_text)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    char first[EPX_MAX_ERROR_STRING], text[EPX_MAX_ERROR_STRING];
    struct routing full;
    struct layer other;
    int code = -1, length;

    EXPECT_CODE(EPX_Comm_get_async_error(comm, &code), EPX_SUCCESS);
    EXPECT(code == EPX_SUCCESS, "code %d without an error", code);
    s.tokens = TOKENS_FULL;
    s.capacity_percent = 50;
    open_scenario(&other, &full, &s);
    EXPECT_CODE(EPX_Wait(&full.request, MPI_STATUS_IGNORE), EPX_ERR_TRUNCATE);
    EPX_Comm_get_error_message(comm, first, &length);
    EXPECT_CODE(EPX_Comm_get_async_error(comm, NULL), EPX_ERR_ARG);
    EPX_Comm_get_error_message(comm, text, &length);
    EXPECT(strcmp(text, first) != 0, "\"%s\" is not of the second error", text);
    EXPECT_CODE(EPX_Comm_get_async_error(comm, &code), EPX_SUCCESS);
    EXPECT(code == EPX_ERR_TRUNCATE, "code %d", code);
    EPX_Comm_get_error_message(comm, text, &length);
    EXPECT(strcmp(text, first) == 0, "\"%s\" is not of the first error", text);
    EXPECT_CODE(EPX_Comm_get_async_error(comm, &code), EPX_SUCCESS);
    EXPECT(code == EPX_SUCCESS, "code %d the second time", code);
    SETTLE();
    routing_free(&full);
    layer_close(&other);
}
END_TEST

START_TEST(a_communicator_with_a_route_or_memory_is_not_freed)
{
    EPX_Comm other = suite_comm(NULL);
    struct scenario s = scenario_small(EPX_FLOAT32);
    void *base = NULL;
    struct layer left;

    fault_watch(other);
    layer_open(&left, &s, other);
    SETTLE();
    EXPECT_FAULT(other, EPX_Comm_free(&other), EPX_ERR_PENDING);
    EXPECT(other != EPX_COMM_NULL, "the handle is gone");
    SETTLE();
    layer_close(&left);
    EXPECT_CODE(EPX_Alloc_mem(100, other, &base), EPX_SUCCESS);
    SETTLE();
    EXPECT_FAULT(other, EPX_Comm_free(&other), EPX_ERR_PENDING);
    SETTLE();
    layer_works(other);
    EXPECT_CODE(EPX_Free_mem(base, other), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&other), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static TCase *across_ranks(void)
{
    TCase *tcase = tcase_create("across ranks");

    tcase_add_checked_fixture(tcase, open_layer, close_layer);
    tcase_add_loop_test(tcase, rows_must_be_of_one_length, 0, 3);
    tcase_add_loop_test(tcase, weights_are_given_on_all_ranks_or_none, 0, 3);
    tcase_add_loop_test(tcase, ranks_must_call_the_same_operation, 0, 3);
    tcase_add_loop_test(tcase, ranks_must_call_on_the_same_route, 0, 3);
    tcase_add_loop_test(tcase, exchanges_must_have_rows_of_one_length, 0, 3);
    tcase_add_loop_test(tcase, attributes_must_agree, 0, 9);
    tcase_add_loop_test(tcase, hints_must_agree, 0, 3);
    return tcase;
}

static TCase *anywhere(void)
{
    TCase *tcase = tcase_create("anywhere");

    tcase_add_checked_fixture(tcase, open_layer, close_layer);
    tcase_add_test(tcase, a_bad_id_calls_the_error_handler_once);
    tcase_add_test(tcase, ids_of_32_bits_given_for_64_are_recognised);
    tcase_add_test(tcase, requests_nobody_waited_for_are_counted);
    tcase_add_test(tcase, an_overflow_calls_the_error_handler_once_an_operation);
    tcase_add_loop_test(tcase, waitall_tells_which_operation_failed, 0, 2);
    tcase_add_test(tcase, an_async_error_is_read_once_with_its_text);
    tcase_add_test(tcase, a_communicator_with_a_route_or_memory_is_not_freed);
    return tcase;
}

static Suite *make_suite(void)
{
    Suite *suite = suite_create("faults");

    if (suite_size > 1)
        suite_add_tcase(suite, across_ranks());
    suite_add_tcase(suite, anywhere());
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
