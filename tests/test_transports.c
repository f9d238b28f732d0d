/* SPDX-License-Identifier: BSD-3-Clause */
/* test_transports.c - all transports on host memory, and two runs of one, give the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "operation.h"
#include "suite.h"

static const char *const names[] = {"shm", "mpi", "ucx"};
enum { TRANSPORTS = sizeof(names) / sizeof(names[0]), ALWAYS = 2 };
static EPX_Comm comms[TRANSPORTS];
static int num_comms;

/* The last of them is there if the library was built with it. */
static void open_comms(void)
{
    for (num_comms = 0; num_comms < TRANSPORTS; num_comms++) {
        MPI_Info info = suite_info("epx_transport", names[num_comms], NULL);
        int code = EPX_Comm_create(MPI_COMM_WORLD, info, &comms[num_comms]);

        MPI_Info_free(&info);
        if (code != EPX_SUCCESS)
            break;
    }
    EXPECT(num_comms >= ALWAYS, "transport %s: no communicator", names[num_comms]);
    SETTLE();
}

static void close_comms(void)
{
    for (int i = 0; i < num_comms; i++)
        EXPECT_CODE(EPX_Comm_free(&comms[i]), EPX_SUCCESS);
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

/* Expects what all communicators from the first to the last give to be the same. */
static void compare(int first, int last, const struct scenario *s, enum verb verb)
{
    size_t bytes, other_bytes;
    unsigned char *expected = outputs(comms[first], s, verb, &bytes);

    for (int i = first == last ? first : first + 1; i <= last; i++) {
        unsigned char *got = outputs(comms[i], s, verb, &other_bytes);

        EXPECT(bytes == other_bytes && memcmp(expected, got, bytes) == 0, "%s: verb %d differs",
               names[i], (int)verb);
        free(got);
    }
    free(expected);
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

START_TEST(all_transports_give_the_same_bytes)
{
    struct scenario s = scenario_of(_i);

    for (enum verb verb = DISPATCH; verb < VERBS; verb++)
        compare(0, num_comms - 1, &s, verb);
}
END_TEST

START_TEST(two_runs_give_the_same_bytes)
{
    struct scenario s = scenario_of(_i);

    for (enum verb verb = DISPATCH; verb < VERBS; verb++)
        for (int i = 0; i < num_comms; i++)
            compare(i, i, &s, verb);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("transports");
    TCase *tcase = tcase_create("same bytes");

    tcase_add_checked_fixture(tcase, open_comms, close_comms);
    tcase_add_loop_test(tcase, all_transports_give_the_same_bytes, 0, 16);
    tcase_add_loop_test(tcase, two_runs_give_the_same_bytes, 0, 8);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
