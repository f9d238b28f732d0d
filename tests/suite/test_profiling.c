/* SPDX-License-Identifier: BSD-3-Clause */
/* test_profiling.c - a preloaded tool sees the calls of the program, and of the program alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "suite/profile_tool.h"
#include "support/suite.h"

enum { TOKENS = 5, HIDDEN = 3 };

static int (*calls_of)(const char *function);
static EPX_Comm comm;
static EPX_Route route;
static EPX_Request requests[2];
static int64_t ids[TOKENS];
static float tokens[TOKENS * HIDDEN], sums[TOKENS * HIDDEN], *rows;

static void expect_calls(const char *function, int wanted)
{
    int calls = calls_of(function);

    EXPECT(calls == wanted, "the tool saw %d calls of %s, not %d", calls, function, wanted);
}

static void expect_no_calls(void)
{
    static const char *const functions[] = {"EPX_Dispatch_fields",
                                            "EPX_Route_dispatch_fields",
                                            "EPX_Comm_create",
                                            "EPX_Route_tokens",
                                            "EPX_Dispatch",
                                            "EPX_Route_dispatch",
                                            "EPX_Combine",
                                            "EPX_Wait",
                                            "EPX_Test",
                                            "EPX_Waitall",
                                            "EPX_Wait_enqueue"};

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        expect_calls(functions[i], 0);
}

/* ISO C converts no object pointer to a function pointer. */
static void find_tool(void)
{
    void *found = dlsym(RTLD_DEFAULT, "tool_calls");

    memcpy(&calls_of, &found, sizeof(calls_of));
    EXPECT(found != NULL, "the tool is not loaded");
    SETTLE();
}

static void open_route(void)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;

    find_tool();
    comm = suite_comm(NULL, NULL);
    expect_calls("EPX_Comm_create", 1);
    attr.num_experts = 2 * suite_size;
    attr.top_k = 1;
    attr.max_tokens = TOKENS;
    EXPECT_CODE(EPX_Route_create(&attr, comm, &route), EPX_SUCCESS);
    EXPECT_CODE(EPX_Route_get_view(route, &view), EPX_SUCCESS);
    EXPECT_CODE(EPX_Alloc_mem(view.capacity * HIDDEN * (MPI_Aint)sizeof(float), comm, &rows),
                EPX_SUCCESS);
    for (int t = 0; t < TOKENS; t++)
        ids[t] = (t + suite_rank) % attr.num_experts;
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        tokens[i] = (float)(100 * suite_rank + i);
    SETTLE();
    expect_no_calls();
}

static void close_route(void)
{
    EXPECT_CODE(EPX_Free_mem(rows, comm), EPX_SUCCESS);
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    expect_no_calls();
    SETTLE();
}

static void start_dispatch(void)
{
    EXPECT_CODE(EPX_Route_tokens(ids, TOKENS, route, EPX_STREAM_NULL, &requests[0]), EPX_SUCCESS);
    EXPECT_CODE(EPX_Dispatch(tokens, NULL, rows, NULL, HIDDEN, EPX_FLOAT32, route, EPX_STREAM_NULL,
                             &requests[1]),
                EPX_SUCCESS);
    expect_calls("EPX_Route_tokens", 1);
    expect_calls("EPX_Dispatch", 1);
    expect_no_calls();
}

static void start_combine(void)
{
    EXPECT_CODE(
        EPX_Combine(rows, NULL, sums, HIDDEN, EPX_FLOAT32, route, EPX_STREAM_NULL, &requests[0]),
        EPX_SUCCESS);
    expect_calls("EPX_Combine", 1);
    expect_no_calls();
}

static void expect_tokens_came_back(void)
{
    EXPECT(memcmp(tokens, sums, sizeof(tokens)) == 0, "combine did not bring the tokens back");
    SETTLE();
}

START_TEST(waitall_is_one_call)
{
    start_dispatch();
    EXPECT_CODE(EPX_Waitall(2, requests, MPI_STATUSES_IGNORE), EPX_SUCCESS);
    expect_calls("EPX_Waitall", 1);
    expect_no_calls();
    start_combine();
    EXPECT_CODE(EPX_Wait(&requests[0], MPI_STATUS_IGNORE), EPX_SUCCESS);
    expect_calls("EPX_Wait", 1);
    expect_no_calls();
    expect_tokens_came_back();
}
END_TEST

/* The library routes and dispatches without calling its own functions. */
START_TEST(route_dispatch_is_one_call)
{
    EXPECT_CODE(EPX_Route_dispatch(ids, TOKENS, tokens, NULL, rows, NULL, HIDDEN, EPX_FLOAT32,
                                   route, EPX_STREAM_NULL, &requests[0]),
                EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&requests[0], MPI_STATUS_IGNORE), EPX_SUCCESS);
    expect_calls("EPX_Route_dispatch", 1);
    expect_calls("EPX_Wait", 1);
    expect_no_calls();
    start_combine();
    EXPECT_CODE(EPX_Wait(&requests[0], MPI_STATUS_IGNORE), EPX_SUCCESS);
    expect_calls("EPX_Wait", 1);
    expect_tokens_came_back();
}
END_TEST

START_TEST(a_dispatch_of_fields_is_one_call)
{
    static const char *const names[] = {"EPX_Dispatch_fields", "EPX_Route_dispatch_fields"};
    const void *in[] = {tokens};
    void *out[] = {rows};
    const int counts[] = {HIDDEN};
    const EPX_Datatype types[] = {EPX_FLOAT32};

    EXPECT_CODE(EPX_Route_dispatch_fields(ids, TOKENS, 1, in, out, counts, types, NULL, NULL, route,
                                          EPX_STREAM_NULL, &requests[0]),
                EPX_SUCCESS);
    EXPECT_CODE(EPX_Dispatch_fields(1, in, out, counts, types, NULL, NULL, route, EPX_STREAM_NULL,
                                    &requests[1]),
                EPX_SUCCESS);
    EXPECT_CODE(EPX_Waitall(2, requests, MPI_STATUSES_IGNORE), EPX_SUCCESS);
    for (int i = 0; i < 2; i++)
        expect_calls(names[i], 1);
    expect_calls("EPX_Waitall", 1);
    expect_no_calls();
    start_combine();
    EXPECT_CODE(EPX_Wait(&requests[0], MPI_STATUS_IGNORE), EPX_SUCCESS);
    expect_calls("EPX_Wait", 1);
    expect_tokens_came_back();
}
END_TEST

START_TEST(wait_enqueue_is_one_call)
{
    start_dispatch();
    for (int i = 0; i < 2; i++)
        EXPECT_CODE(EPX_Wait_enqueue(&requests[i], EPX_STREAM_NULL), EPX_SUCCESS);
    expect_calls("EPX_Wait_enqueue", 2);
    expect_no_calls();
    start_combine();
    EXPECT_CODE(EPX_Wait_enqueue(&requests[0], EPX_STREAM_NULL), EPX_SUCCESS);
    expect_calls("EPX_Wait_enqueue", 1);
    expect_no_calls();
    expect_tokens_came_back();
}
END_TEST

START_TEST(every_test_is_seen)
{
    int tests = 0, complete = 0;

    start_dispatch();
    for (int i = 0; i < 2; i++)
        for (complete = 0; !complete; tests++)
            EXPECT_CODE(EPX_Test(&requests[i], &complete, MPI_STATUS_IGNORE), EPX_SUCCESS);
    expect_calls("EPX_Test", tests);
    expect_no_calls();
    start_combine();
    EXPECT_CODE(EPX_Wait(&requests[0], MPI_STATUS_IGNORE), EPX_SUCCESS);
    expect_calls("EPX_Wait", 1);
    expect_tokens_came_back();
}
END_TEST

START_TEST(a_refused_call_is_seen_with_its_error)
{
    EXPECT_CODE(EPX_Wait(NULL, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    expect_calls("EPX_Wait", 1);
    expect_no_calls();
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("profiling");
    TCase *tcase = tcase_create("profiling");

    tcase_add_checked_fixture(tcase, open_route, close_route);
    tcase_add_test(tcase, waitall_is_one_call);
    tcase_add_test(tcase, route_dispatch_is_one_call);
    tcase_add_test(tcase, a_dispatch_of_fields_is_one_call);
    tcase_add_test(tcase, wait_enqueue_is_one_call);
    tcase_add_test(tcase, every_test_is_seen);
    tcase_add_test(tcase, a_refused_call_is_seen_with_its_error);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
