/* SPDX-License-Identifier: BSD-3-Clause */
/* test_route.c - the view after EPX_Route_tokens, for every layout, policy and routing. */
#include "support/operation.h"
#include "support/suite.h"

static EPX_Comm comm;

static const EPX_Layout layouts[] = {EPX_EXPERT_MAJOR, EPX_RANK_MAJOR, EPX_EXPERT_SLAB};

static void open_comm(void)
{
    comm = suite_comm(NULL);
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    EXPECT(comm == EPX_COMM_NULL, "communicator not nulled");
    SETTLE();
}

START_TEST(view_tells_every_pair_and_row)
{
    struct scenario s = scenario_edge(_i);

    scenario_print(&s);
    layer_run(&s, comm, VERBS, 4);
}
END_TEST

START_TEST(alignment_pads_every_slab)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.alignment = 1 << _i;
    layer_run(&s, comm, VERBS, 2);
}
END_TEST

START_TEST(ids_of_both_widths_mean_the_same)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.routing = _i ? ROUTING_BAD : ROUTING_UNIFORM;
    s.index_bits = 32;
    layer_run(&s, comm, VERBS, 2);
    s.index_bits = 64;
    layer_run(&s, comm, VERBS, 2);
}
END_TEST

/* The capacity of a routing is the one set before it; one set after it waits for the next. */
START_TEST(the_capacity_may_change_between_routings)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct operation op[2];
    struct routing routing;
    struct layer layer;

    s.tokens = TOKENS_FULL;
    s.sets_capacity = 1;
    s.capacity_percent = 40;
    s.overflow = EPX_OVERFLOW_DROP;
    s.layout = _i ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    layer_open(&layer, &s, comm);
    SETTLE();
    for (uint64_t i = 1; i <= 3; i++) {
        for (int r = 0; r < suite_size; r++)
            layer.recv_capacity[r] =
                i == 2 ? layer.recv_capacity[r] / 2 + 1 : layer.recv_capacity[r] + (int64_t)i - 1;
        EXPECT_CODE(EPX_Route_set_capacity(layer.route, layer.recv_capacity[suite_rank]),
                    EPX_SUCCESS);
        EXPECT_CODE(routing_start(&routing, &layer, s.seed + i), EPX_SUCCESS);
        EXPECT_CODE(EPX_Route_set_capacity(layer.route, 0), EPX_SUCCESS);
        EXPECT_CODE(operation_start(&op[0], &routing, DISPATCH, i), EPX_SUCCESS);
        EXPECT_CODE(operation_start(&op[1], &routing, COMBINE, i), EPX_SUCCESS);
        routing_finish(&routing);
        operation_finish(&op[0]);
        operation_finish(&op[1]);
        SETTLE();
        operation_free(&op[0]);
        operation_free(&op[1]);
        routing_free(&routing);
    }
    layer_close(&layer);
}
END_TEST

/* Counts of both routings are told, though the view shows the second alone; then no more. */
START_TEST(counts_outlive_the_next_routing)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct routing routing[3];
    struct layer layer;

    s.layout = _i ? EPX_EXPERT_SLAB : EPX_EXPERT_MAJOR;
    layer_open(&layer, &s, comm);
    SETTLE();
    for (uint64_t i = 0; i < 3; i++) {
        routing_prepare(&routing[i], &layer, s.seed + i);
        if (i == 2)
            buffer_freeze(&routing[i].counts);
    }
    for (int i = 0; i < 2; i++)
        EXPECT_CODE(routing_call(&routing[i]), EPX_SUCCESS);
    for (int i = 0; i < 2; i++)
        EXPECT_CODE(EPX_Wait(&routing[i].request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    routing[2].counts.address = NULL;
    EXPECT_CODE(routing_call(&routing[2]), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&routing[2].request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    routing_check_counts(&routing[0]);
    routing_check_counts(&routing[1]);
    buffer_check(&routing[2].counts, "counts");
    SETTLE();
    for (int i = 0; i < 3; i++)
        routing_free(&routing[i]);
    layer_close(&layer);
    SETTLE();
}
END_TEST

START_TEST(routing_after_an_overflow_works)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct layer layer;
    struct routing routing;

    s.tokens = TOKENS_FULL;
    s.capacity_percent = 50;
    s.layout = layouts[_i];
    layer_open(&layer, &s, comm);
    SETTLE();
    for (int call = 0; call < 4; call++) {
        layer.s.tokens = call % 2 ? TOKENS_NONE : TOKENS_FULL;
        if (EXPECT_CODE(routing_start(&routing, &layer, s.seed), EPX_SUCCESS))
            routing_finish(&routing);
        EXPECT(routing.ref->truncated == (call % 2 == 0), "the test does not overflow");
        SETTLE();
        routing_free(&routing);
    }
    layer_close(&layer);
    SETTLE();
}
END_TEST

static int has_room(const struct ref *ref)
{
    int ranks = 0;

    for (int r = 0; r < suite_size; r++)
        ranks += ref->rank[r].required_rows <= ref->rank[r].capacity;
    return ranks > 0;
}

/* The capacities are what the first of many routings needs: the others are short on some ranks.
 * Slabs have less, as all have room for what the fullest of that routing needs. */
START_TEST(one_rank_without_room_empties_the_view_of_all)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    int emptied_with_room = 0;
    struct layer layer;
    struct routing routing;

    s.layout = layouts[_i];
    s.capacity_percent = s.layout == EPX_EXPERT_SLAB ? 80 : 100;
    s.alignment = _i ? 1 : 4;
    layer_open(&layer, &s, comm);
    SETTLE();
    for (uint64_t call = 0; call < 12; call++) {
        if (EXPECT_CODE(routing_start(&routing, &layer, s.seed + call), EPX_SUCCESS))
            routing_finish(&routing);
        emptied_with_room += routing.ref->truncated && has_room(routing.ref);
        SETTLE();
        routing_free(&routing);
    }
    EXPECT(suite_size == 1 || emptied_with_room, "no routing was short on some ranks alone");
    layer_close(&layer);
    SETTLE();
}
END_TEST

/* So many tokens that a block of a small GPU cannot have all their records in shared memory. */
START_TEST(many_tokens_are_routed)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct layer layer;
    struct routing routing;

    s.max_tokens = 20000;
    s.top_k = 4;
    s.count = 1;
    s.tokens = TOKENS_FULL;
    s.layout = layouts[_i];
    if (s.layout == EPX_EXPERT_MAJOR) {
        s.routing = ROUTING_HOLES;
        s.overflow = EPX_OVERFLOW_DROP;
        s.capacity_percent = 90;
    }
    layer_open(&layer, &s, comm);
    SETTLE();
    for (uint64_t call = 0; call < 2; call++) {
        if (EXPECT_CODE(routing_start(&routing, &layer, s.seed + call), EPX_SUCCESS))
            routing_finish(&routing);
        SETTLE();
        routing_free(&routing);
    }
    layer_close(&layer);
    SETTLE();
}
END_TEST

START_TEST(capacity_may_exceed_the_worst_case)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.tokens = TOKENS_FULL;
    s.capacity_percent = 1000;
    s.layout = layouts[_i];
    layer_run(&s, comm, VERBS, 2);
}
END_TEST

START_TEST(many_routes_live_side_by_side)
{
    struct layer layers[6];
    struct routing routing;

    for (int i = 0; i < 6; i++) {
        struct scenario s = scenario_edge(i);

        layer_open(&layers[i], &s, comm);
    }
    SETTLE();
    for (int i = 11; i >= 0; i--) {
        if (EXPECT_CODE(routing_start(&routing, &layers[i % 6], (uint64_t)i), EPX_SUCCESS))
            routing_finish(&routing);
        SETTLE();
        routing_free(&routing);
    }
    for (int i = 0; i < 6; i++)
        layer_close(&layers[i]);
    SETTLE();
}
END_TEST

START_TEST(host_values_are_valid_after_creation)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct layer layer;
    int first = (int)((int64_t)suite_rank * s.experts / suite_size);

    layer_open(&layer, &s, comm);
    EXPECT(layer.view.first_local_expert == first, "from %d", layer.view.first_local_expert);
    EXPECT(layer.view.capacity == (int64_t)suite_size * s.max_tokens * s.top_k, "capacity %lld",
           (long long)layer.view.capacity);
    SETTLE();
    layer_close(&layer);
}
END_TEST

START_TEST(any_route_has_the_view_of_the_reference)
{
    struct scenario s = scenario_random(4000 + (uint64_t)_i);

    scenario_print(&s);
    layer_run(&s, comm, VERBS, 3);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("route");
    TCase *tcase = tcase_create("view");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, view_tells_every_pair_and_row, 0, SCENARIO_EDGES);
    tcase_add_loop_test(tcase, alignment_pads_every_slab, 0, 9);
    tcase_add_loop_test(tcase, ids_of_both_widths_mean_the_same, 0, 2);
    tcase_add_loop_test(tcase, the_capacity_may_change_between_routings, 0, 2);
    tcase_add_loop_test(tcase, counts_outlive_the_next_routing, 0, 2);
    tcase_add_loop_test(tcase, routing_after_an_overflow_works, 0, 3);
    tcase_add_loop_test(tcase, one_rank_without_room_empties_the_view_of_all, 0, 3);
    tcase_add_loop_test(tcase, many_tokens_are_routed, 0, 3);
    tcase_add_loop_test(tcase, capacity_may_exceed_the_worst_case, 0, 3);
    tcase_add_test(tcase, many_routes_live_side_by_side);
    tcase_add_test(tcase, host_values_are_valid_after_creation);
    tcase_add_loop_test(tcase, any_route_has_the_view_of_the_reference, 0, 40);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
