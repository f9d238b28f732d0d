/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_route_dispatch.c - EPX_Route_dispatch: every byte is that of the reference, and that of
 * EPX_Route_tokens followed by EPX_Dispatch, in errors too.
 */
#include <string.h>

#include "support/fault.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { IN_FLIGHT = 5 };

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
    fault_watch(comm);
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static void open_layer(struct layer *layer, const struct scenario *s)
{
    layer_open(layer, s, comm);
    SETTLE();
}

static void open_small(struct layer *layer)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.tokens = TOKENS_FULL;
    open_layer(layer, &s);
}

/* One call, with everything that it leads to. */
static void run_once(struct layer *layer, uint64_t seed)
{
    struct routing routing;
    struct operation op;

    routing_prepare(&routing, layer, seed);
    if (EXPECT_CODE(operation_route_start(&op, &routing, seed + 1), EPX_SUCCESS))
        operation_route_finish(&op);
    SETTLE();
    operation_free(&op);
    routing_free(&routing);
}

static void run(const struct scenario *s, int n)
{
    struct layer layer;

    open_layer(&layer, s);
    for (int i = 0; i < n; i++)
        run_once(&layer, s->seed + (uint64_t)i * 1000);
    layer_close(&layer);
    SETTLE();
}

START_TEST(every_row_arrives_once)
{
    struct scenario s = scenario_edge(_i);

    scenario_print(&s);
    run(&s, 3);
}
END_TEST

START_TEST(every_datatype_is_moved_as_it_is)
{
    struct scenario s = scenario_small(EPX_BYTE + _i / 2);

    s.layout = _i % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.count = 51;
    run(&s, 2);
}
END_TEST

static const int lengths[] = {0, 1, 7, 4096, 65535, 65536, 65537, 200001};

START_TEST(rows_of_any_length_arrive)
{
    struct scenario s = scenario_small(EPX_BYTE);

    s.experts = suite_size + 1;
    s.top_k = 2;
    s.max_tokens = 2;
    s.layout = _i / 2 % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.count = lengths[_i / 2];
    s.row_bytes_known = _i % 2 && s.count <= 65536;
    s.memory = (enum memory)(_i % 3);
    run(&s, 2);
}
END_TEST

START_TEST(empty_ranks_send_nothing)
{
    struct scenario s = scenario_small(EPX_FLOAT16);

    s.tokens = _i % 2 ? TOKENS_NONE : TOKENS_ONE_RANK;
    s.memory = (enum memory)(_i / 2);
    run(&s, 2);
}
END_TEST

/* So many tokens that their records do not fit a stage. */
START_TEST(more_tokens_than_a_stage_takes_arrive)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.tokens = TOKENS_FULL;
    s.max_tokens = 2000;
    s.count = 2;
    run(&s, 1);
}
END_TEST

/* More rows than a bank of a GPU holds, each for one slot. */
START_TEST(many_rows_of_one_slot_arrive)
{
    struct scenario s = scenario_one_slot(EPX_BYTE, _i % 2 ? 32771 : 32768);

    s.layout = _i / 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.memory = (enum memory)(_i % 3);
    run(&s, 2);
}
END_TEST

/* A block of rows is as long as the rows of this call allow, whatever it was in the
 * call before. */
START_TEST(long_rows_follow_short_ones)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.tokens = TOKENS_FULL;
    s.max_tokens = 500;
    s.count = 1;
    run(&s, 1);
    s.count = 700;
    run(&s, 1);
}
END_TEST

START_TEST(any_call_is_that_of_the_reference)
{
    struct scenario s = scenario_random(3000 + (uint64_t)_i);

    scenario_print(&s);
    run(&s, 2);
}
END_TEST

static void expect_same(const struct buffer *a, const struct buffer *b, const char *what)
{
    EXPECT(a->bytes == b->bytes && (!a->bytes || memcmp(a->data, b->data, a->bytes) == 0),
           "%s of one call and of two differ", what);
}

static uint64_t rows_sent(const EPX_Stats *stats)
{
    return stats->rows_self + stats->rows_node + stats->rows_network;
}

static uint64_t bytes_sent(const EPX_Stats *stats)
{
    return stats->bytes_self + stats->bytes_node + stats->bytes_network;
}

static EPX_Stats stats_now(void)
{
    EPX_Stats stats = EPX_STATS_INIT;

    EXPECT_CODE(EPX_Comm_get_stats(comm, &stats), EPX_SUCCESS);
    return stats;
}

static void finish_two(struct routing *routing, struct operation *op)
{
    MPI_Status status;
    int code;

    routing_finish(routing);
    code = EPX_Wait(&op->request, &status);
    EXPECT(code == (routing->ref->truncated ? EPX_ERR_TRUNCATE : EPX_SUCCESS), "error %d", code);
    operation_check(op);
}

static void expect_stats(const EPX_Stats *start, const EPX_Stats *one, const EPX_Stats *two)
{
    EXPECT(one->calls - start->calls == 1, "one call counts as %d",
           (int)(one->calls - start->calls));
    EXPECT(two->calls - one->calls == 2, "two calls count as %d", (int)(two->calls - one->calls));
    EXPECT(rows_sent(one) - rows_sent(start) == rows_sent(two) - rows_sent(one), "rows differ");
    EXPECT(bytes_sent(one) - bytes_sent(start) == bytes_sent(two) - bytes_sent(one),
           "bytes differ");
    EXPECT(one->dropped_rows - start->dropped_rows == two->dropped_rows - one->dropped_rows,
           "dropped rows differ");
    EXPECT(two->timeouts == 0 && two->host_syncs == 0, "time-outs or host syncs");
}

START_TEST(one_call_does_what_two_do)
{
    struct scenario s = _i < 20 ? scenario_edge(_i) : scenario_random(4000 + (uint64_t)_i);
    struct operation one, two;
    struct routing first, second;
    EPX_Stats start, middle, end;
    struct layer layer;

    open_layer(&layer, &s);
    routing_prepare(&first, &layer, s.seed);
    routing_prepare(&second, &layer, s.seed);
    operation_prepare(&one, &first, DISPATCH, 8);
    operation_prepare(&two, &second, DISPATCH, 8);
    start = stats_now();
    EXPECT_CODE(operation_route_call(&one), EPX_SUCCESS);
    operation_route_finish(&one);
    middle = stats_now();
    EXPECT_CODE(routing_call(&second), EPX_SUCCESS);
    EXPECT_CODE(operation_call(&two), EPX_SUCCESS);
    finish_two(&second, &two);
    end = stats_now();
    expect_stats(&start, &middle, &end);
    expect_same(&one.out, &two.out, "rows");
    expect_same(&one.out_weights, &two.out_weights, "weights");
    SETTLE();
    operation_free(&one);
    operation_free(&two);
    routing_free(&first);
    routing_free(&second);
    layer_close(&layer);
    SETTLE();
}
END_TEST

/* Every call has its own routing of the same route, and combine brings its rows home. */
START_TEST(calls_in_flight_keep_their_order)
{
    struct operation there[IN_FLIGHT], back[IN_FLIGHT];
    struct routing routing[IN_FLIGHT];
    struct layer layer;

    open_small(&layer);
    for (int i = 0; i < IN_FLIGHT; i++) {
        routing_prepare(&routing[i], &layer, (uint64_t)i);
        EXPECT_CODE(operation_route_start(&there[i], &routing[i], 20), EPX_SUCCESS);
        EXPECT_CODE(operation_start(&back[i], &routing[i], COMBINE, 30), EPX_SUCCESS);
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        int reversed = IN_FLIGHT - 1 - i;

        operation_finish(&back[_i ? reversed : i]);
        operation_finish(&there[_i ? reversed : i]);
    }
    routing_check(&routing[IN_FLIGHT - 1]);
    SETTLE();
    for (int i = 0; i < IN_FLIGHT; i++) {
        operation_free(&there[i]);
        operation_free(&back[i]);
        routing_free(&routing[i]);
    }
    layer_close(&layer);
}
END_TEST

/* Behind a routing of two calls, and before one; then the backwards of what it sent. */
START_TEST(one_call_and_two_take_turns)
{
    struct routing before, routing, after;
    struct operation op[5];
    struct layer layer;

    open_small(&layer);
    EXPECT_CODE(routing_start(&before, &layer, 1), EPX_SUCCESS);
    EXPECT_CODE(operation_start(&op[0], &before, DISPATCH, 2), EPX_SUCCESS);
    routing_prepare(&routing, &layer, 3);
    EXPECT_CODE(operation_route_start(&op[1], &routing, 4), EPX_SUCCESS);
    EXPECT_CODE(operation_start(&op[2], &routing, COMBINE_BACKWARD, 5), EPX_SUCCESS);
    EXPECT_CODE(operation_start(&op[3], &routing, DISPATCH_BACKWARD, 6), EPX_SUCCESS);
    EXPECT_CODE(routing_start(&after, &layer, 7), EPX_SUCCESS);
    EXPECT_CODE(operation_start(&op[4], &after, DISPATCH, 8), EPX_SUCCESS);
    for (int i = 0; i < 5; i++)
        operation_finish(&op[i]);
    EXPECT_CODE(EPX_Wait(&before.request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    routing_finish(&after);
    SETTLE();
    for (int i = 0; i < 5; i++)
        operation_free(&op[i]);
    routing_free(&before);
    routing_free(&routing);
    routing_free(&after);
    layer_close(&layer);
}
END_TEST

static void complete_by(int way, struct operation *op)
{
    EPX_Stream stream = op->routing->layer->stream;
    MPI_Status status;
    int flag = 0;

    if (way == 0) {
        while (!flag)
            EXPECT_CODE(EPX_Test(&op->request, &flag, &status), EPX_SUCCESS);
        status_check(&status, EPX_SUCCESS, operation_rows(op));
    } else if (way == 1) {
        EXPECT_CODE(EPX_Waitall(1, &op->request, &status), EPX_SUCCESS);
        status_check(&status, EPX_SUCCESS, operation_rows(op));
    } else {
        EXPECT_CODE(EPX_Wait_enqueue(&op->request, stream), EPX_SUCCESS);
        space_wait_stream(stream);
    }
    EXPECT(op->request == EPX_REQUEST_NULL, "request not nulled");
}

START_TEST(every_way_to_complete_it_works)
{
    struct routing routing;
    struct operation op;
    struct layer layer;

    open_small(&layer);
    routing_prepare(&routing, &layer, 1);
    EXPECT_CODE(operation_route_start(&op, &routing, 2), EPX_SUCCESS);
    complete_by(_i, &op);
    operation_check(&op);
    routing_check(&routing);
    SETTLE();
    operation_free(&op);
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST

/* The freed route lives on until its last operation is through. */
START_TEST(the_request_outlives_the_route)
{
    struct routing routing;
    struct operation op;
    struct layer layer;

    open_small(&layer);
    routing_prepare(&routing, &layer, 1);
    EXPECT_CODE(operation_route_start(&op, &routing, 2), EPX_SUCCESS);
    layer_close(&layer);
    operation_finish(&op);
    SETTLE();
    operation_free(&op);
    routing_free(&routing);
}
END_TEST

START_TEST(freeing_the_communicator_completes_it)
{
    struct routing routing;
    struct operation op;
    struct layer layer;
    EPX_Comm brief = suite_comm(NULL);
    struct scenario s = scenario_small(EPX_FLOAT32);

    layer_open(&layer, &s, brief);
    SETTLE();
    routing_prepare(&routing, &layer, 1);
    EXPECT_CODE(operation_route_start(&op, &routing, 2), EPX_SUCCESS);
    layer_close(&layer);
    EXPECT_CODE(EPX_Comm_free(&brief), EPX_SUCCESS);
    operation_finish(&op);
    SETTLE();
    operation_free(&op);
    routing_free(&routing);
}
END_TEST

/* Bad ids are told once the rows have moved: what follows finds a good routing. */
START_TEST(a_bad_id_moves_the_rest)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct operation op, back;
    struct routing routing;
    struct layer layer;

    s.routing = ROUTING_BAD;
    s.tokens = TOKENS_FULL;
    s.max_tokens = 64;
    open_layer(&layer, &s);
    routing_prepare(&routing, &layer, 1);
    EXPECT(routing.ref->rank[suite_rank].bad_ids > 0, "the test has no bad id");
    EXPECT_CODE(operation_route_start(&op, &routing, 2), EPX_SUCCESS);
    EXPECT_CODE(operation_start(&back, &routing, COMBINE, 3), EPX_SUCCESS);
    EXPECT_FAULT(comm, EPX_Wait(&op.request, MPI_STATUS_IGNORE), EPX_ERR_ARG);
    fault_message_has(comm, "EPX_Route_dispatch: expert id ");
    operation_check(&op);
    routing_check(&routing);
    operation_finish(&back);
    SETTLE();
    operation_free(&op);
    operation_free(&back);
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST

/* What stands on the overflowed routing fails likewise; the next call clears it. */
START_TEST(an_overflow_writes_nothing)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct operation op, back;
    struct routing routing;
    struct layer layer;

    s.tokens = TOKENS_FULL;
    s.capacity_percent = 50;
    open_layer(&layer, &s);
    routing_prepare(&routing, &layer, s.seed);
    EXPECT(routing.ref->truncated, "the test does not overflow");
    EXPECT_CODE(operation_route_start(&op, &routing, 2), EPX_SUCCESS);
    EXPECT_CODE(operation_start(&back, &routing, COMBINE, 3), EPX_SUCCESS);
    EXPECT_FAULT(comm, EPX_Wait(&op.request, MPI_STATUS_IGNORE), EPX_ERR_TRUNCATE);
    operation_check(&op);
    routing_check(&routing);
    operation_finish(&back);
    SETTLE();
    operation_free(&op);
    operation_free(&back);
    routing_free(&routing);
    layer.s.tokens = TOKENS_NONE;
    run_once(&layer, 5);
    layer_close(&layer);
}
END_TEST

/* Operations that do not agree, or stand on nothing: the communicator's handler is told. */
static void expect_refused(EPX_Request *request, const char *part)
{
    EXPECT_FAULT(comm, EPX_Wait(request, MPI_STATUS_IGNORE), EPX_ERR_ARG);
    if (part)
        fault_message_has(comm, part);
    SETTLE();
}

/* Starts a call, of rows of another length or without weights here, that must write nothing. */
static void start_in_vain(struct operation *op, struct routing *routing, int odd)
{
    struct scenario *s = &routing->layer->s;
    int count = s->count;

    routing->ref->truncated = 1;
    operation_prepare(op, routing, DISPATCH, 3);
    routing->ref->truncated = 0;
    s->count -= odd == 1;
    if (odd == 2)
        op->weights.address = NULL;
    EXPECT_CODE(operation_route_call(op), EPX_SUCCESS);
    s->count = count;
}

/* Nothing is routed, so that what is called on the route fails until the next routing. */
START_TEST(rows_and_weights_must_agree)
{
    static const char *const parts[] = {"the length of a row in bytes is ", "weights are NULL on "};
    struct operation op, later;
    struct routing routing;
    struct layer layer;
    int odd = suite_rank == (_i / 2 ? suite_size - 1 : 0) ? 1 + _i % 2 : 0;

    open_small(&layer);
    run_once(&layer, 1);
    routing_prepare(&routing, &layer, 2);
    start_in_vain(&op, &routing, odd);
    routing.ref->truncated = 1;
    EXPECT_CODE(operation_start(&later, &routing, COMBINE, 4), EPX_SUCCESS);
    expect_refused(&op.request, "EPX_Route_dispatch: ");
    fault_message_has(comm, parts[_i % 2]);
    operation_check(&op);
    expect_refused(&later.request, parts[_i % 2]);
    operation_check(&later);
    SETTLE();
    operation_free(&op);
    operation_free(&later);
    routing_free(&routing);
    run_once(&layer, 5);
    layer_close(&layer);
}
END_TEST

/* One rank makes another call in its place: one of the two that it stands for, or combine. */
START_TEST(all_ranks_call_it_or_none)
{
    static const char *const names[] = {"EPX_Route_tokens", "EPX_Dispatch", "EPX_Combine"};
    struct routing routing, other;
    struct operation op;
    struct layer layer;
    int odd = suite_rank == (_i / 3 ? suite_size - 1 : 0);

    open_small(&layer);
    run_once(&layer, 1);
    routing_prepare(&routing, &layer, 2);
    routing_prepare(&other, &layer, 2);
    routing.ref->truncated = 1;
    if (odd && _i % 3 == 0) {
        EXPECT_CODE(routing_call(&other), EPX_SUCCESS);
        operation_prepare(&op, &routing, DISPATCH, 3);
        op.request = other.request;
    } else if (odd) {
        EXPECT_CODE(operation_start(&op, &routing, _i % 3 == 1 ? DISPATCH : COMBINE, 3),
                    EPX_SUCCESS);
    } else {
        EXPECT_CODE(operation_route_start(&op, &routing, 3), EPX_SUCCESS);
    }
    expect_refused(&op.request, "EPX_Route_dispatch");
    fault_message_has(comm, names[_i % 3]);
    fault_message_has(comm, "at the same place");
    operation_check(&op);
    SETTLE();
    operation_free(&op);
    routing_free(&routing);
    routing_free(&other);
    run_once(&layer, 5);
    layer_close(&layer);
}
END_TEST

/* Each argument of either half in turn; the routing before stays in force. */
static void expect_arguments_refused(const struct operation *op, EPX_Request *request)
{
    const struct layer *layer = op->routing->layer;
    const struct scenario *s = &layer->s;
    const void *ids = op->routing->id_buffer.address, *in = op->in.address;
    const float *w = op->weights.address;
    void *out = op->out.address;
    int n = op->routing->tokens[suite_rank], over = s->max_tokens + 1;
    EPX_Stream stream = layer->stream;
    EPX_Route r = layer->route;

#define REFUSED(wanted, text, ...)                                                                 \
    EXPECT_FAULT(comm, EPX_Route_dispatch(__VA_ARGS__), wanted);                                   \
    fault_message_has(comm, "EPX_Route_dispatch: " text)
    REFUSED(EPX_ERR_COUNT, "num_tokens", ids, -1, in, w, out, NULL, s->count, s->datatype, r,
            stream, request);
    REFUSED(EPX_ERR_COUNT, "num_tokens", ids, over, in, w, out, NULL, s->count, s->datatype, r,
            stream, request);
    REFUSED(EPX_ERR_COUNT, "count", ids, n, in, w, out, NULL, -1, s->datatype, r, stream, request);
    REFUSED(EPX_ERR_TYPE, "datatype", ids, n, in, w, out, NULL, s->count, -5, r, stream, request);
    REFUSED(EPX_ERR_BUFFER, "expert_ids", NULL, n, in, w, out, NULL, s->count, s->datatype, r,
            stream, request);
    REFUSED(EPX_ERR_BUFFER, "sendbuf", ids, n, NULL, w, out, NULL, s->count, s->datatype, r, stream,
            request);
    REFUSED(EPX_ERR_BUFFER, "recvbuf", ids, n, in, w, NULL, NULL, s->count, s->datatype, r, stream,
            request);
    REFUSED(EPX_ERR_BUFFER, "", ids, n, in, w, (void *)(uintptr_t)ids, NULL, s->count, s->datatype,
            r, stream, request);
    REFUSED(EPX_ERR_ARG, "request", ids, n, in, w, out, NULL, s->count, s->datatype, r, stream,
            NULL);
#undef REFUSED
    EXPECT_FAULT(NULL,
                 EPX_Route_dispatch(ids, n, in, w, out, NULL, s->count, s->datatype, EPX_ROUTE_NULL,
                                    stream, request),
                 EPX_ERR_ROUTE);
    EXPECT(*request == EPX_REQUEST_NULL, "a refused call left a request");
}

START_TEST(a_refused_call_leaves_everything_as_it_was)
{
    EPX_Request request = EPX_REQUEST_NULL;
    struct routing routing, refused;
    struct operation op, back;
    struct layer layer;

    open_small(&layer);
    EXPECT_CODE(routing_start(&routing, &layer, 1), EPX_SUCCESS);
    routing_finish(&routing);
    routing_prepare(&refused, &layer, 2);
    refused.ref->truncated = 1;
    operation_prepare(&op, &refused, DISPATCH, 3);
    expect_arguments_refused(&op, &request);
    operation_check(&op);
    routing_check(&routing);
    EXPECT_CODE(operation_start(&back, &routing, COMBINE, 4), EPX_SUCCESS);
    operation_finish(&back);
    SETTLE();
    operation_free(&op);
    operation_free(&back);
    routing_free(&refused);
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("route_dispatch");
    TCase *tcase = tcase_create("route_dispatch");
    int ranks_differ = suite_size > 1;

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, every_row_arrives_once, 0, SCENARIO_EDGES);
    tcase_add_loop_test(tcase, every_datatype_is_moved_as_it_is, 0, 14);
    tcase_add_loop_test(tcase, rows_of_any_length_arrive, 0, 16);
    tcase_add_loop_test(tcase, empty_ranks_send_nothing, 0, 6);
    tcase_add_test(tcase, more_tokens_than_a_stage_takes_arrive);
    tcase_add_loop_test(tcase, many_rows_of_one_slot_arrive, 0, 4);
    tcase_add_test(tcase, long_rows_follow_short_ones);
    tcase_add_loop_test(tcase, any_call_is_that_of_the_reference, 0, 30);
    tcase_add_loop_test(tcase, one_call_does_what_two_do, 0, 30);
    tcase_add_loop_test(tcase, calls_in_flight_keep_their_order, 0, 2);
    tcase_add_test(tcase, one_call_and_two_take_turns);
    tcase_add_loop_test(tcase, every_way_to_complete_it_works, 0, 3);
    tcase_add_test(tcase, the_request_outlives_the_route);
    tcase_add_test(tcase, freeing_the_communicator_completes_it);
    tcase_add_test(tcase, a_bad_id_moves_the_rest);
    tcase_add_test(tcase, an_overflow_writes_nothing);
    tcase_add_loop_test(tcase, rows_and_weights_must_agree, 0, ranks_differ ? 4 : 0);
    tcase_add_loop_test(tcase, all_ranks_call_it_or_none, 0, ranks_differ ? 6 : 0);
    tcase_add_test(tcase, a_refused_call_leaves_everything_as_it_was);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
