/* SPDX-License-Identifier: BSD-3-Clause */
/* test_transports.c - two transports, and two runs of one, give the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "operation.h"
#include "suite.h"

static EPX_Comm direct, staged;
static EPX_Comm nodes, tiers; /* pretended nodes of 2 */

static void open_comms(void)
{
    direct = suite_comm("epx_transport", "shm", NULL);
    staged = suite_comm("epx_transport", "mpi", NULL);
    nodes = suite_comm("epx_transport", "mpi", "epx_ranks_per_node", "2", NULL);
    tiers = suite_comm("epx_transport", "shm+mpi", "epx_ranks_per_node", "2", NULL);
}

static void close_comms(void)
{
    EXPECT_CODE(EPX_Comm_free(&direct), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&staged), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&nodes), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&tiers), EPX_SUCCESS);
    SETTLE();
}

/* The outputs of a verb, as one block of bytes. */
static unsigned char *outputs(EPX_Comm comm, const struct scenario *s, enum verb verb,
                              size_t *bytes)
{
    unsigned char *copy;
    struct layer layer;
    struct routing routing;
    struct operation op;

    layer_open(&layer, s, comm);
    SETTLE();
    EXPECT_CODE(routing_start(&routing, &layer, s->seed), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&routing.request, MPI_STATUS_IGNORE), routing_code(&routing));
    EXPECT_CODE(operation_start(&op, &routing, verb, s->seed + 9), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&op.request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    *bytes = op.out.bytes + op.out_weights.bytes;
    copy = malloc(*bytes + 1);
    memcpy(copy, op.out.data, op.out.bytes);
    if (op.out_weights.data)
        memcpy(copy + op.out.bytes, op.out_weights.data, op.out_weights.bytes);
    operation_free(&op);
    routing_free(&routing);
    layer_close(&layer);
    SETTLE();
    return copy;
}

static void compare(EPX_Comm a, EPX_Comm b, const struct scenario *s, enum verb verb)
{
    size_t a_bytes, b_bytes;
    unsigned char *from_a = outputs(a, s, verb, &a_bytes);
    unsigned char *from_b = outputs(b, s, verb, &b_bytes);

    EXPECT(a_bytes == b_bytes && memcmp(from_a, from_b, a_bytes) == 0, "verb %d differs",
           (int)verb);
    free(from_a);
    free(from_b);
    SETTLE();
}

static struct scenario scenario_of(int i)
{
    struct scenario s = scenario_small(EPX_FLOAT16 + i % 4);

    s.layout = i / 4 % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.top_k = 10;
    s.count = i / 8 ? 40000 : 500;
    s.max_tokens = i / 8 ? 2 : 12;
    s.capacity_percent = 100;
    return s;
}

START_TEST(shm_and_mpi_give_the_same_bytes)
{
    struct scenario s = scenario_of(_i);

    for (enum verb verb = DISPATCH; verb < VERBS; verb++)
        compare(direct, staged, &s, verb);
}
END_TEST

START_TEST(tiers_and_messages_alone_give_the_same_bytes)
{
    struct scenario s = scenario_of(_i);

    s.ranks_per_node = 2;
    for (enum verb verb = DISPATCH; verb < VERBS; verb++)
        compare(nodes, tiers, &s, verb);
}
END_TEST

START_TEST(two_runs_give_the_same_bytes)
{
    struct scenario s = scenario_of(_i);

    for (enum verb verb = DISPATCH; verb < VERBS; verb++) {
        compare(direct, direct, &s, verb);
        compare(staged, staged, &s, verb);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("transports");
    TCase *tcase = tcase_create("same bytes");

    tcase_add_checked_fixture(tcase, open_comms, close_comms);
    tcase_add_loop_test(tcase, shm_and_mpi_give_the_same_bytes, 0, 16);
    tcase_add_loop_test(tcase, tiers_and_messages_alone_give_the_same_bytes, 0, 16);
    tcase_add_loop_test(tcase, two_runs_give_the_same_bytes, 0, 8);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
