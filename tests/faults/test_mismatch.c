/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_mismatch.c - ranks that call different things at the same place, at different speeds: all of
 * them learn it, nothing is stored, nothing else in flight is harmed, and the next routing works.
 * Also ranks that come after the others gave up: they touch nobody's memory.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "support/exchange.h"
#include "support/fault.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { ROUNDS = 5, SLOW_MS = 40, LATE_MS = 800 };

static EPX_Comm comm;
static struct layer a, b; /* of different numbers of experts */
static struct routing routing_a, routing_b;

/* Delays one rank: the first, the last, or none. */
static void dawdle(int i)
{
    const int slow[] = {0, suite_size - 1, -1};

    if (suite_rank == slow[i % 3])
        suite_sleep_ms(SLOW_MS);
}

static int odd(int i)
{
    return suite_rank == (i % 2 ? suite_size - 1 : 0);
}

static void route(struct layer *layer, struct routing *routing, uint64_t seed)
{
    if (EXPECT_CODE(routing_start(routing, layer, seed), EPX_SUCCESS))
        routing_finish(routing);
    SETTLE();
}

static void reroute(struct layer *layer, struct routing *routing, uint64_t seed)
{
    routing_free(routing);
    route(layer, routing, seed);
}

static void check_verbs(struct routing *routing)
{
    for (enum verb verb = DISPATCH; verb < VERBS; verb++) {
        struct operation op;

        if (EXPECT_CODE(operation_start(&op, routing, verb, 70 + (uint64_t)verb), EPX_SUCCESS))
            operation_finish(&op);
        SETTLE();
        operation_free(&op);
    }
}

static void check_exchange(void)
{
    struct exchange x = {.comm = comm, .data = {5, EPX_BYTE, 16, 0}, .most_rows = 3};

    if (EXPECT_CODE(exchange_start(&x), EPX_SUCCESS))
        exchange_finish(&x);
    SETTLE();
    exchange_free(&x);
}

static void open_unrouted(void)
{
    struct scenario s = scenario_small(EPX_FLOAT16);

    memset(&routing_a, 0, sizeof(routing_a));
    memset(&routing_b, 0, sizeof(routing_b));
    s.tokens = TOKENS_FULL;
    comm = suite_comm(NULL);
    fault_watch(comm);
    layer_open(&a, &s, comm);
    s.experts *= 8;
    layer_open(&b, &s, comm);
    SETTLE();
}

static void open_routed(void)
{
    open_unrouted();
    route(&a, &routing_a, 1);
    route(&b, &routing_b, 2);
}

/* Checks that after a mismatch routing again is all it takes. */
static void close_layers(void)
{
    SETTLE();
    reroute(&a, &routing_a, 3);
    check_verbs(&routing_a);
    reroute(&b, &routing_b, 4);
    check_verbs(&routing_b);
    check_exchange();
    routing_free(&routing_a);
    routing_free(&routing_b);
    layer_close(&a);
    layer_close(&b);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

/* Starts an operation that must leave its outputs as they are. */
static int start_in_vain(struct operation *op, struct routing *routing, enum verb verb)
{
    int truncated = routing->ref->truncated, code;

    routing->ref->truncated = 1;
    code = operation_start(op, routing, verb, 50);
    routing->ref->truncated = truncated;
    return EXPECT_CODE(code, EPX_SUCCESS);
}

static void expect_refused(EPX_Request *request)
{
    MPI_Status status;

    EXPECT_FAULT(comm, EPX_Wait(request, &status), EPX_ERR_ARG);
    EXPECT(*request == EPX_REQUEST_NULL, "request not nulled");
    EXPECT(status.MPI_ERROR == EPX_ERR_ARG, "status has error %d", status.MPI_ERROR);
}

static void finish_in_vain(struct operation *op)
{
    expect_refused(&op->request);
    operation_check(op);
    SETTLE();
    operation_free(op);
}

static void call_in_vain(struct routing *routing, enum verb verb)
{
    struct operation op;

    start_in_vain(&op, routing, verb);
    finish_in_vain(&op);
}

/* On GPUs work may be queued behind a routing that fails: the counts that it finds are 0. */
static void check_counts_in_vain(struct routing *routing)
{
    if (!space_is_device() || !routing->counts.expected)
        return;
    memset(routing->counts.expected, 0, routing->counts.bytes);
    buffer_check(&routing->counts, "counts");
}

/* Routes on this rank's layer, which is not the layer of the others. */
static void route_in_vain(struct layer *layer, int slow)
{
    struct routing routing;

    dawdle(slow);
    EXPECT_CODE(routing_start(&routing, layer, 9), EPX_SUCCESS);
    dawdle(slow + 1);
    expect_refused(&routing.request);
    buffer_check(&routing.id_buffer, "expert_ids");
    check_counts_in_vain(&routing);
    SETTLE();
    routing_free(&routing);
}

static void open_overflowed(struct layer *full, struct routing *routing)
{
    struct scenario s = scenario_small(EPX_FLOAT16);

    s.tokens = TOKENS_FULL;
    s.capacity_percent = 50;
    layer_open(full, &s, comm);
    SETTLE();
    route(full, routing, s.seed);
    EXPECT(routing->ref->truncated, "the test does not overflow");
    SETTLE();
}

/* Keeps in flight together: a good routing, an overflowed, a good, and one that fits at last. */
START_TEST(an_overflowed_operation_disturbs_no_neighbour)
{
    struct operation before, failed, after;
    struct routing full_routing, again;
    struct layer full;

    open_overflowed(&full, &full_routing);
    full.s.tokens = TOKENS_NONE;
    a.s.tokens = TOKENS_ONE_RANK; /* so that no rank waits for rows of the others */
    reroute(&a, &routing_a, 1);
    a.s.tokens = TOKENS_FULL;
    dawdle(_i + 1);
    EXPECT_CODE(operation_start(&before, &routing_a, (enum verb)(_i / 3), 60), EPX_SUCCESS);
    for (int i = 0; i < 3; i++)
        dawdle(_i);
    EXPECT_CODE(operation_start(&failed, &full_routing, (enum verb)(_i / 3), 61), EPX_SUCCESS);
    EXPECT_CODE(routing_start(&again, &full, 5), EPX_SUCCESS);
    EXPECT_CODE(operation_start(&after, &routing_b, (enum verb)(_i / 3), 62), EPX_SUCCESS);
    operation_finish(&before);
    operation_finish(&failed);
    routing_finish(&again);
    operation_finish(&after);
    SETTLE();
    operation_free(&before);
    operation_free(&failed);
    operation_free(&after);
    routing_free(&full_routing);
    routing_free(&again);
    layer_close(&full);
}
END_TEST

START_TEST(a_failed_route_against_a_good_one_is_a_mismatch)
{
    struct routing full_routing;
    struct layer full;

    open_overflowed(&full, &full_routing);
    dawdle(_i / 2);
    call_in_vain(odd(_i) ? &full_routing : &routing_a, DISPATCH);
    check_verbs(&routing_a);
    routing_free(&full_routing);
    layer_close(&full);
}
END_TEST

/* Operations on either routing fail on all ranks; the next round has the layers exchanged. */
START_TEST(routing_works_after_a_mismatch_of_routes)
{
    for (int round = 0; round < ROUNDS; round++) {
        route_in_vain(odd(_i + round) ? &a : &b, _i);
        call_in_vain(&routing_a, DISPATCH);
        call_in_vain(&routing_b, COMBINE);
    }
    reroute(&a, &routing_a, 6);
    check_verbs(&routing_a);
    call_in_vain(&routing_b, DISPATCH);
}
END_TEST

/* The routing of the route that the other verb used stays good. */
START_TEST(a_routing_does_not_pass_for_another_verb)
{
    for (int round = 0; round < ROUNDS; round++) {
        if (odd(_i + round))
            route_in_vain(&a, round);
        else
            call_in_vain(&routing_b, (enum verb)(_i / 2));
        call_in_vain(&routing_a, DISPATCH);
    }
    check_verbs(&routing_b);
}
END_TEST

/* Whole buffers of known bytes, for calls that the reference cannot predict. */
static struct buffer from, to, counts;

static void open_plain(void)
{
    buffer_create(&from, 1 << 16, 4, MEMORY_MALLOC, comm);
    buffer_create(&to, 1 << 18, 4, MEMORY_MALLOC, comm);
    buffer_create(&counts, 4 * (size_t)suite_size * sizeof(int64_t), 8, MEMORY_MALLOC, comm);
}

static void close_plain(void)
{
    buffer_check(&to, "output");
    buffer_free(&from);
    buffer_free(&to);
    buffer_free(&counts);
    SETTLE();
}

static void exchange_in_vain(void)
{
    EPX_Request request = EPX_REQUEST_NULL;
    int64_t *image, *sendcounts;

    open_plain();
    image = counts.data;
    sendcounts = counts.address;
    for (int r = 0; r < suite_size; r++) {
        image[r] = 2;
        image[suite_size + r] = 0;
    }
    buffer_freeze(&counts);
    EXPECT_CODE(EPX_Alltoallv(from.address, sendcounts, sendcounts + suite_size, to.address,
                              sendcounts + 2 * suite_size, sendcounts + 3 * suite_size, 1024, 8,
                              EPX_FLOAT32, comm, EPX_STREAM_NULL, &request),
                EPX_SUCCESS);
    expect_refused(&request);
    close_plain();
}

START_TEST(a_routing_does_not_pass_for_an_exchange)
{
    for (int round = 0; round < ROUNDS; round++)
        if (odd(_i + round))
            route_in_vain(&a, round);
        else
            exchange_in_vain();
    call_in_vain(&routing_a, DISPATCH);
    check_verbs(&routing_b);
}
END_TEST

/* A rank that never routed has its route spoiled like the others, and may call operations on it. */
START_TEST(a_rank_that_never_routed_takes_part_in_the_failure)
{
    struct layer *routed[] = {&a, &b};

    route_in_vain(routed[odd(_i)], _i / 2);
    for (int i = 0; i < 2; i++) {
        EPX_Request request = EPX_REQUEST_NULL;

        open_plain();
        EXPECT_CODE(EPX_Dispatch(from.address, NULL, to.address, NULL, 8, EPX_FLOAT16,
                                 routed[i]->route, EPX_STREAM_NULL, &request),
                    EPX_SUCCESS);
        SETTLE();
        expect_refused(&request);
        close_plain();
    }
}
END_TEST

/* Frees the routes while a mismatch and an operation on the routing that it spoils are queued. */
START_TEST(a_mismatch_reaches_operations_on_freed_routes)
{
    struct scenario s = scenario_small(EPX_FLOAT16);
    struct routing first, again;
    struct operation op, queued;
    struct layer freed;

    s.tokens = TOKENS_FULL;
    layer_open(&freed, &s, comm);
    SETTLE();
    route(&freed, &first, 8);
    dawdle(_i / 2);
    if (odd(_i))
        start_in_vain(&op, &routing_b, DISPATCH);
    else
        EXPECT_CODE(routing_start(&again, &freed, 9), EPX_SUCCESS);
    start_in_vain(&queued, &first, DISPATCH);
    layer_close(&freed);
    dawdle(_i / 2 + 1);
    if (odd(_i)) {
        finish_in_vain(&op);
    } else {
        expect_refused(&again.request);
        SETTLE();
        routing_free(&again);
    }
    finish_in_vain(&queued);
    check_verbs(&routing_b);
    routing_free(&first);
}
END_TEST

/* The rows have the same length, so dispatch would move them. */
START_TEST(verbs_that_add_need_the_same_datatype)
{
    enum verb verb = (enum verb)(COMBINE + _i / 2);

    a.s.datatype = odd(_i) ? EPX_BFLOAT16 : EPX_FLOAT16;
    call_in_vain(&routing_a, verb);
    fault_message_has(comm, "datatype");
    a.s.datatype = EPX_FLOAT16;
    check_verbs(&routing_a);
}
END_TEST

/* One rank gives one bias less than the others, or no weights of its tokens, by itself or by a call
 * of EPX_Combine; what it gives then fits together again. */
START_TEST(ranks_give_a_combine_the_same)
{
    const int weights = _i / 2 == 1, biases = _i / 2 == 2 ? 1 : 2;

    a.s.biases = odd(_i) ? biases - 1 : biases;
    a.s.token_weighted = !weights || !odd(_i);
    if (_i / 2 == 2)
        a.s.token_weighted = 0;
    if (weights)
        a.s.biases = 0;
    call_in_vain(&routing_a, COMBINE);
    fault_message_has(comm, weights ? "token_weights" : "num_biases");
    a.s.biases = biases;
    a.s.token_weighted = weights;
    check_verbs(&routing_a);
    a.s.biases = a.s.token_weighted = 0;
}
END_TEST

static EPX_Comm open_hasty(void)
{
    EPX_Comm hasty = suite_comm("epx_timeout_ms", "400", NULL);

    MPI_Barrier(MPI_COMM_WORLD);
    return hasty;
}

/* Lets the late rank do, between the two barriers, what it still does. */
static void let_it_come(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    suite_sleep_ms(100);
    MPI_Barrier(MPI_COMM_WORLD);
}

static __attribute__((noinline)) void expect_own_stack(void)
{
    volatile uint64_t words[4096];
    int bad = 0;

    for (int i = 0; i < 4096; i++)
        words[i] = UINT64_C(0x1111111111111111);
    let_it_come();
    for (int i = 0; i < 4096; i++)
        bad += words[i] != UINT64_C(0x1111111111111111);
    EXPECT(bad == 0, "%d words of the stack were overwritten", bad);
}

static __attribute__((noinline)) int call_blocking(EPX_Comm hasty, int create)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route made;
    void *base;

    attr.num_experts = attr.top_k = attr.max_tokens = 4;
    return create ? EPX_Route_create(&attr, hasty, &made) : EPX_Alloc_mem(100, hasty, &base);
}

START_TEST(a_rank_late_for_a_blocking_call_leaves_stacks_alone)
{
    EPX_Comm hasty = open_hasty();

    if (odd(_i))
        suite_sleep_ms(LATE_MS);
    EXPECT_CODE(call_blocking(hasty, _i / 2), EPX_ERR_TIMEOUT);
    expect_own_stack();
    EXPECT_CODE(EPX_Comm_free(&hasty), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* Takes memory that the library may have given back, in pieces of several sizes. */
static void expect_own_heap(void)
{
    enum { PIECES = 120 };
    static unsigned char *pieces[PIECES];
    static const size_t sizes[] = {300000, 70000, 2000, 300};
    long bad = 0;

    for (int i = 0; i < PIECES; i++) {
        pieces[i] = malloc(sizes[i % 4]);
        ck_assert_ptr_nonnull(pieces[i]);
        memset(pieces[i], 0x5a, sizes[i % 4]);
    }
    let_it_come();
    for (int i = 0; i < PIECES; i++) {
        for (size_t k = 0; k < sizes[i % 4]; k++)
            bad += pieces[i][k] != 0x5a;
        free(pieces[i]);
    }
    EXPECT(bad == 0, "%ld bytes of the heap were overwritten", bad);
}

/* The late rank is late for the call, or leaves in the middle of it; the counts are long
 * messages. */
START_TEST(a_rank_late_for_a_routing_leaves_heaps_alone)
{
    EPX_Comm hasty = open_hasty();
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route big = EPX_ROUTE_NULL;
    EPX_Request request = EPX_REQUEST_NULL;
    int64_t ids[4] = {0, 1, 2, 3};
    int code;

    attr.num_experts = 1 << 16;
    attr.top_k = 1;
    attr.max_tokens = 4;
    EXPECT_CODE(EPX_Route_create(&attr, hasty, &big), EPX_SUCCESS);
    SETTLE();
    if (_i < 2 && odd(_i))
        suite_sleep_ms(LATE_MS);
    code = EPX_Route_tokens(ids, 4, big, EPX_STREAM_NULL, &request);
    if (_i >= 2 && odd(_i))
        suite_sleep_ms(LATE_MS);
    if (code == EPX_SUCCESS)
        code = EPX_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(code == EPX_ERR_TIMEOUT, "code %d", code);
    EXPECT_CODE(EPX_Route_free(&big), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&hasty), EPX_SUCCESS);
    expect_own_heap();
    SETTLE();
}
END_TEST

static void add_mismatches(Suite *suite)
{
    TCase *routed = tcase_create("routed"), *unrouted = tcase_create("unrouted");

    tcase_add_checked_fixture(routed, open_routed, close_layers);
    tcase_add_loop_test(routed, an_overflowed_operation_disturbs_no_neighbour, 0, 3 * VERBS);
    tcase_add_loop_test(routed, a_failed_route_against_a_good_one_is_a_mismatch, 0, 6);
    tcase_add_loop_test(routed, routing_works_after_a_mismatch_of_routes, 0, 3);
    tcase_add_loop_test(routed, a_routing_does_not_pass_for_another_verb, 0, 2 * VERBS);
    tcase_add_loop_test(routed, a_routing_does_not_pass_for_an_exchange, 0, 2);
    tcase_add_loop_test(routed, a_mismatch_reaches_operations_on_freed_routes, 0, 6);
    tcase_add_loop_test(routed, verbs_that_add_need_the_same_datatype, 0, 6);
    tcase_add_loop_test(routed, ranks_give_a_combine_the_same, 0, 6);
    tcase_add_checked_fixture(unrouted, open_unrouted, close_layers);
    if (!space_is_device()) /* on a device only ranks that routed know of the failure */
        tcase_add_loop_test(unrouted, a_rank_that_never_routed_takes_part_in_the_failure, 0, 6);
    suite_add_tcase(suite, routed);
    suite_add_tcase(suite, unrouted);
}

static Suite *make_suite(void)
{
    Suite *suite = suite_create("mismatch");
    TCase *late = tcase_create("late");

    add_mismatches(suite);
    tcase_add_loop_test(late, a_rank_late_for_a_blocking_call_leaves_stacks_alone, 0, 4);
    if (!space_is_device()) /* kernels do not wait for a sleeping host */
        tcase_add_loop_test(late, a_rank_late_for_a_routing_leaves_heaps_alone, 0, 4);
    suite_add_tcase(suite, late);
    return suite;
}

int main(int argc, char **argv)
{
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 1 << 28); /* so that memory given back is taken again */
#endif
    return suite_main(&argc, &argv, make_suite);
}
