/* SPDX-License-Identifier: BSD-3-Clause */
/* test_backward.c - every bit of the gradients of dispatch and combine. */
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

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

START_TEST(dispatch_backward_sums_the_gradients_of_a_token)
{
    struct scenario s = scenario_edge(_i);

    scenario_print(&s);
    layer_run(&s, comm, DISPATCH_BACKWARD, 3);
}
END_TEST

START_TEST(combine_backward_scales_the_gradient_of_a_row)
{
    struct scenario s = scenario_edge(_i);

    scenario_print(&s);
    layer_run(&s, comm, COMBINE_BACKWARD, 3);
}
END_TEST

START_TEST(gradients_of_every_datatype)
{
    struct scenario s = scenario_small(EPX_FLOAT16 + _i % 4);

    s.layout = _i / 4 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.top_k = 9;
    s.alignment = _i / 4 ? 1 : 4;
    layer_run(&s, comm, DISPATCH_BACKWARD, 2);
    layer_run(&s, comm, COMBINE_BACKWARD, 2);
}
END_TEST

static const int lengths[] = {0, 1, 2, 255, 256, 257, 1023, 1024, 1025, 4097, 30011, 300007};

START_TEST(sums_of_weight_gradients_have_one_shape)
{
    struct scenario s = scenario_small(EPX_FLOAT16 + _i % 4);

    s.experts = suite_size + 1;
    s.top_k = 2;
    s.max_tokens = 2;
    s.capacity_percent = 100;
    s.overflow = EPX_OVERFLOW_DROP;
    s.layout = _i / 2 % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.count = lengths[_i / 4];
    s.memory = (enum memory)(_i % 3);
    layer_run(&s, comm, COMBINE_BACKWARD, 1);
    layer_run(&s, comm, DISPATCH_BACKWARD, 1);
}
END_TEST

/* So many slots of rows so long that a block of a GPU scales them in several batches, where a small
 * operation has few blocks. */
START_TEST(many_long_rows_are_scaled)
{
    struct scenario s = scenario_small(_i ? EPX_FLOAT32 : EPX_BFLOAT16);
    EPX_Comm roomy = suite_comm(NULL);

    s.top_k = 8;
    s.experts = 8 * suite_size;
    s.tokens = TOKENS_FULL;
    s.count = 7000;
    layer_run(&s, roomy, COMBINE_BACKWARD, 2);
    suite_free_comm(&roomy);
}
END_TEST

/* So many rows, and so short, that a warp of a GPU sends several at once. */
START_TEST(many_short_rows_are_scaled)
{
    const int counts[] = {1, 50, 512};
    struct scenario s = scenario_small(EPX_BFLOAT16);
    EPX_Comm windows = suite_comm("epx_window_bytes", _i / 3 % 2 ? "65536" : "16777216", NULL);

    s.tokens = _i % 4 ? TOKENS_FULL : TOKENS_UNEVEN;
    s.max_tokens = space_is_device() ? 12000 : 1000;
    s.count = counts[_i % 3];
    s.layout = _i % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.memory = (enum memory)((_i + _i / 3) % 3);
    layer_run(&s, windows, COMBINE_BACKWARD, 1);
    suite_free_comm(&windows);
}
END_TEST

/* More rows than a bank of a GPU holds, each for one slot. */
START_TEST(many_rows_of_one_slot_are_scaled)
{
    struct scenario s = scenario_one_slot(EPX_BFLOAT16, _i % 2 ? 16387 : 16384);

    s.layout = _i / 2 % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.weightless = _i / 4;
    layer_run(&s, comm, COMBINE_BACKWARD, 2);
    layer_run(&s, comm, DISPATCH_BACKWARD, 1);
}
END_TEST

/* A sum that starts from +0 is never -0, and a sum of rows that all are -0 is. */
START_TEST(sums_of_zeros_have_their_sign)
{
    const int counts[] = {1024, 2048, 100};
    struct scenario s = scenario_small(EPX_FLOAT16 + _i % 4);

    s.zeros = 1;
    s.count = counts[_i / 4];
    s.max_tokens = (_i + _i / 4) % 2 ? 300 : 12;
    s.layout = _i / 2 % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.weightless = _i / 4 == 1;
    layer_run(&s, comm, DISPATCH_BACKWARD, 1);
    layer_run(&s, comm, COMBINE_BACKWARD, 1);
}
END_TEST

START_TEST(any_gradient_is_that_of_the_reference)
{
    struct scenario s = scenario_random(3000 + (uint64_t)_i);

    s.tight = _i % 2;
    scenario_print(&s);
    layer_run(&s, comm, DISPATCH_BACKWARD, 1);
    layer_run(&s, comm, COMBINE_BACKWARD, 2);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("backward");
    TCase *tcase = tcase_create("backward");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, dispatch_backward_sums_the_gradients_of_a_token, 0, SCENARIO_EDGES);
    tcase_add_loop_test(tcase, combine_backward_scales_the_gradient_of_a_row, 0, SCENARIO_EDGES);
    tcase_add_loop_test(tcase, gradients_of_every_datatype, 0, 8);
    tcase_add_loop_test(tcase, sums_of_weight_gradients_have_one_shape, 0, 48);
    tcase_add_loop_test(tcase, many_long_rows_are_scaled, 0, 2);
    tcase_add_loop_test(tcase, many_short_rows_are_scaled, 0, space_is_device() ? 6 : 3);
    tcase_add_loop_test(tcase, many_rows_of_one_slot_are_scaled, 0, 8);
    tcase_add_loop_test(tcase, sums_of_zeros_have_their_sign, 0, 12);
    tcase_add_loop_test(tcase, any_gradient_is_that_of_the_reference, 0, 40);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
