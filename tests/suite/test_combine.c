/* SPDX-License-Identifier: BSD-3-Clause */
/* test_combine.c - every bit of EPX_Combine: order of the sums, roundings, nodes. */
#include <fenv.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

static EPX_Comm comm;

/* epx_window_bytes may be any number: rows still lie where they can be added. */
static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65543", NULL);
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

START_TEST(every_token_gets_its_sum)
{
    struct scenario s = scenario_edge(_i % SCENARIO_EDGES);

    s.datatype = _i < SCENARIO_EDGES ? EPX_BFLOAT16 : EPX_FLOAT32;
    scenario_print(&s);
    layer_run(&s, comm, COMBINE, 3);
}
END_TEST

START_TEST(every_datatype_rounds_as_promised)
{
    struct scenario s = scenario_small(EPX_FLOAT16 + _i % 4);

    s.layout = _i / 4 % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.weightless = _i / 8;
    s.top_k = 16;
    s.experts = 8 * suite_size;
    s.count = 300;
    layer_run(&s, comm, COMBINE, 2);
}
END_TEST

static const int lengths[] = {0, 1, 7, 4095, 16384, 16385, 50001, 500003};

START_TEST(rows_of_any_length_are_summed)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.experts = suite_size + 1;
    s.top_k = 2;
    s.max_tokens = 2;
    s.capacity_percent = 100;
    s.overflow = EPX_OVERFLOW_DROP;
    s.layout = _i / 2 % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.count = lengths[_i / 2];
    s.row_bytes_known = _i % 2 && s.count <= 16384;
    s.memory = (enum memory)(_i % 3);
    layer_run(&s, comm, COMBINE, 2);
}
END_TEST

/* Whether the transport needs ranks that share memory on every pretended node, or on the only
 * one. */
static int needs_memory(int ranks_per_node)
{
    int within = space_is_device() || strcmp(suite_transport(), "shm") == 0;

    if (strchr(suite_transport(), '+')) /* a pretended node must not span real ones */
        return suite_nodes[suite_size - 1] != 0;
    return within && ranks_per_node < suite_size;
}

/* Whether ranks of a node share a GPU, which NCCL refuses. */
static int shares_gpus(int ranks_per_node)
{
    int ranks = ranks_per_node < suite_size ? ranks_per_node : suite_size;

    return strcmp(suite_transport(), "nccl") == 0 && space_num_gpus() < ranks;
}

/* Pretended nodes: some transports are not usable then, the sums are the same on all others. */
static EPX_Comm comm_of_nodes(int ranks_per_node)
{
    EPX_Comm nodes = EPX_COMM_NULL;
    char text[16];
    MPI_Info info;
    int code;

    snprintf(text, sizeof(text), "%d", ranks_per_node);
    info = suite_info("epx_ranks_per_node", text, NULL);
    code = EPX_Comm_create(MPI_COMM_WORLD, info, &nodes);
    MPI_Info_free(&info);
    if (!needs_memory(ranks_per_node) && !shares_gpus(ranks_per_node))
        EXPECT_CODE(code, EPX_SUCCESS);
    else
        EXPECT(code == EPX_SUCCESS || code == EPX_ERR_TRANSPORT, "code %d", code);
    SETTLE();
    return nodes;
}

START_TEST(nodes_are_summed_one_after_the_other)
{
    struct scenario s = scenario_small(EPX_FLOAT16 + _i % 4);
    EPX_Comm nodes = comm_of_nodes(1 + _i / 4);

    if (nodes == EPX_COMM_NULL)
        return;
    s.ranks_per_node = 1 + _i / 4;
    s.top_k = 12;
    s.experts = 6 * suite_size;
    s.count = 200;
    layer_run(&s, nodes, COMBINE, 1);
    s.layout = EPX_RANK_MAJOR;
    layer_run(&s, nodes, COMBINE, 1);
    layer_run(&s, nodes, DISPATCH_BACKWARD, 1);
    EXPECT_CODE(EPX_Comm_free(&nodes), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* What the home rank gives to a combine, by number: one or two biases, weights, or both. */
static void give_from_home(struct scenario *s, int i)
{
    s->token_weighted = i % 3 > 0 && s->layout != EPX_RANK_MAJOR && !s->weightless;
    s->biases = i % 3 == 1 ? 0 : 1 + i / 3 % 2;
    s->tight = i % 2;
}

START_TEST(every_sum_starts_from_its_biases)
{
    struct scenario s = scenario_edge(_i);

    s.datatype = _i % 2 ? EPX_FLOAT32 : EPX_BFLOAT16;
    give_from_home(&s, _i);
    scenario_print(&s);
    layer_run(&s, comm, COMBINE, 2);
}
END_TEST

START_TEST(biases_round_as_promised)
{
    static const int counts[] = {0, 1, 7, 200, 1025, 4096, 16385, 50001};
    struct scenario s = scenario_small(EPX_FLOAT16 + _i % 4);

    s.top_k = 16;
    s.experts = 8 * suite_size;
    s.count = counts[_i / 4 % 8];
    s.max_tokens = s.count > 10000 ? 2 : 12;
    give_from_home(&s, _i);
    layer_run(&s, comm, COMBINE, 1);
}
END_TEST

START_TEST(nodes_are_added_to_biases)
{
    struct scenario s = scenario_small(EPX_FLOAT16 + _i % 4);
    EPX_Comm nodes = comm_of_nodes(1 + _i / 4);

    if (nodes == EPX_COMM_NULL)
        return;
    s.ranks_per_node = 1 + _i / 4;
    s.top_k = 12;
    s.experts = 6 * suite_size;
    s.count = 200;
    for (int i = 0; i < 6; i++) {
        give_from_home(&s, i);
        layer_run(&s, nodes, COMBINE, 1);
    }
    EXPECT_CODE(EPX_Comm_free(&nodes), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(tokens_without_pairs_are_zero)
{
    struct scenario s = scenario_small(EPX_FLOAT64);

    s.routing = ROUTING_HOLES;
    s.top_k = 1;
    s.tokens = TOKENS_FULL;
    layer_run(&s, comm, COMBINE, 2);
}
END_TEST

enum { FLUSH_TO_ZERO = 0x8040 }; /* of results and of operands */

/* How a caller may have set up the thread: to round towards minus infinity, to treat subnormal
 * numbers as zero, where the test knows how. */
static void round_otherwise(int way)
{
    if (way == 0)
        fesetround(FE_DOWNWARD);
#if defined(__x86_64__)
    else
        _mm_setcsr(_mm_getcsr() | FLUSH_TO_ZERO);
#endif
}

static int rounds_otherwise(int way)
{
#if defined(__x86_64__)
    return way == 0 ? fegetround() == FE_DOWNWARD : (_mm_getcsr() & FLUSH_TO_ZERO) == FLUSH_TO_ZERO;
#else
    return way || fegetround() == FE_DOWNWARD;
#endif
}

/* Calls and completes an operation, of which all is ready, in a thread that rounds otherwise. */
static void run_rounding(struct operation *op, int way)
{
    fenv_t usual;

    fegetenv(&usual);
    round_otherwise(way);
    EXPECT_CODE(operation_call(op), EPX_SUCCESS);
    operation_finish(op);
    EXPECT(rounds_otherwise(way), "the caller's rounding was changed");
    fesetenv(&usual);
}

START_TEST(sums_are_the_same_however_the_caller_rounds)
{
    static const enum verb verbs[] = {COMBINE, DISPATCH_BACKWARD, COMBINE_BACKWARD};
    struct scenario s = scenario_small(EPX_FLOAT16 + _i % 4);
    struct operation op;
    struct routing routing;
    struct layer layer;

    s.top_k = 8;
    s.experts = 4 * suite_size;
    s.count = 300;
    layer_open(&layer, &s, comm);
    EXPECT_CODE(routing_start(&routing, &layer, 1), EPX_SUCCESS);
    routing_finish(&routing);
    SETTLE();
    for (int i = 0; i < 3; i++) {
        operation_prepare(&op, &routing, verbs[i], 7 + (uint64_t)_i);
        run_rounding(&op, _i / 4);
        SETTLE();
        operation_free(&op);
    }
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST

/* With more choices than EPX_SMALL_TOP_K no combine is small; the stage holds all rows. Rows lie on
 * multiples of 16 bytes, or not. */
START_TEST(sums_that_are_not_small_are_right)
{
    static const int counts[] = {1000, 1001, 2503};
    struct scenario s = scenario_small(EPX_FLOAT16 + _i % 4);
    EPX_Comm roomy = suite_comm(NULL);

    s.top_k = 40;
    s.experts = 20 * suite_size;
    s.max_tokens = 5;
    s.count = counts[_i / 4];
    layer_run(&s, roomy, COMBINE, 2);
    s.layout = EPX_RANK_MAJOR;
    layer_run(&s, roomy, DISPATCH_BACKWARD, 1);
    suite_free_comm(&roomy);
}
END_TEST

/* Small combines of GPUs whose rows take so many bytes that parts come with flags, not in
 * packets. */
START_TEST(small_sums_of_long_rows_are_right)
{
    static const int counts[] = {16384, 20001};
    struct scenario s = scenario_small(EPX_FLOAT16 + _i % 4);
    EPX_Comm roomy = suite_comm(NULL);

    s.max_tokens = 40;
    s.tokens = TOKENS_FULL;
    s.count = counts[_i / 4];
    layer_run(&s, roomy, COMBINE, 2);
    suite_free_comm(&roomy);
}
END_TEST

START_TEST(any_combine_is_that_of_the_reference)
{
    struct scenario s = scenario_random(2000 + (uint64_t)_i);

    scenario_print(&s);
    layer_run(&s, comm, COMBINE, 2);
}
END_TEST

START_TEST(any_combine_from_is_that_of_the_reference)
{
    struct scenario s = scenario_random(2100 + (uint64_t)_i);

    give_from_home(&s, _i);
    scenario_print(&s);
    layer_run(&s, comm, COMBINE, 2);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("combine");
    TCase *tcase = tcase_create("combine");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, every_token_gets_its_sum, 0, 2 * SCENARIO_EDGES);
    tcase_add_loop_test(tcase, every_datatype_rounds_as_promised, 0, 16);
    tcase_add_loop_test(tcase, rows_of_any_length_are_summed, 0, 16);
    tcase_add_loop_test(tcase, nodes_are_summed_one_after_the_other, 0, 12);
    tcase_add_loop_test(tcase, every_sum_starts_from_its_biases, 0, SCENARIO_EDGES);
    tcase_add_loop_test(tcase, biases_round_as_promised, 0, 32);
    tcase_add_loop_test(tcase, nodes_are_added_to_biases, 0, 12);
    tcase_add_test(tcase, tokens_without_pairs_are_zero);
    tcase_add_loop_test(tcase, sums_are_the_same_however_the_caller_rounds, 0, 8);
    tcase_add_loop_test(tcase, sums_that_are_not_small_are_right, 0, 12);
    if (space_is_device())
        tcase_add_loop_test(tcase, small_sums_of_long_rows_are_right, 0, 8);
    tcase_add_loop_test(tcase, any_combine_is_that_of_the_reference, 0, 40);
    tcase_add_loop_test(tcase, any_combine_from_is_that_of_the_reference, 0, 40);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
