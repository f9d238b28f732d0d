/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_transports.c - all transports that are usable on the communicator, and two runs of one, give
 * the same bytes; on pretended nodes too, where sums are added in another order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/operation.h"
#include "support/suite.h"

static const char *const names[] = {"shm", "shm+ucx", "ucx", "shm+mpi", "mpi"};
static const char *const ranks_per_node[] = {"0", "2"};

enum { NAMES = sizeof(names) / sizeof(*names), KINDS_OF_NODES = 2 };

static EPX_Comm comms[KINDS_OF_NODES][NAMES]; /* EPX_COMM_NULL where the transport is not usable */

/* Whether transport i may find that it cannot serve these nodes. */
static int may_refuse(int nodes, int i)
{
    int hier = strchr(names[i], '+') != NULL, real = 0;

    for (int r = 0; r < suite_size; r++)
        real |= suite_nodes[r] != 0;
    if (strstr(names[i], "ucx"))
        return 1;
    if (hier) /* pretended nodes may span real ones */
        return nodes && real;
    return strcmp(names[i], "shm") == 0 && (real || (nodes && suite_size > 2));
}

static void open_comm(int nodes, int i)
{
    MPI_Info info =
        suite_info("epx_transport", names[i], "epx_ranks_per_node", ranks_per_node[nodes], NULL);
    int code = EPX_Comm_create(MPI_COMM_WORLD, info, &comms[nodes][i]);

    EXPECT_CODE(code, code == EPX_ERR_TRANSPORT && may_refuse(nodes, i) ? code : EPX_SUCCESS);
    if (suite_rank == 0)
        printf("transport %s, %s ranks per node: %s\n", names[i], ranks_per_node[nodes],
               comms[nodes][i] == EPX_COMM_NULL ? "not usable" : "compared");
    MPI_Info_free(&info);
    SETTLE();
}

static void open_comms(void)
{
    for (int nodes = 0; nodes < KINDS_OF_NODES; nodes++)
        for (int i = 0; i < NAMES; i++)
            open_comm(nodes, i);
}

static void close_comms(void)
{
    for (int nodes = 0; nodes < KINDS_OF_NODES; nodes++)
        for (int i = 0; i < NAMES; i++)
            if (comms[nodes][i] != EPX_COMM_NULL)
                EXPECT_CODE(EPX_Comm_free(&comms[nodes][i]), EPX_SUCCESS);
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

/* Compares a run of each transport with a run of the last, mpi, which is always usable. */
static void compare(const EPX_Comm *usable, const struct scenario *s, enum verb verb)
{
    size_t bytes, other_bytes;
    unsigned char *wanted = outputs(usable[NAMES - 1], s, verb, &bytes);

    for (int i = 0; i < NAMES; i++) {
        unsigned char *got;

        if (usable[i] == EPX_COMM_NULL)
            continue;
        got = outputs(usable[i], s, verb, &other_bytes);
        EXPECT(bytes == other_bytes && memcmp(wanted, got, bytes) == 0, "%s: verb %d differs",
               names[i], (int)verb);
        free(got);
    }
    free(wanted);
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
    int nodes = (_i + _i / 4) % KINDS_OF_NODES;
    struct scenario s = scenario_of(_i);

    s.ranks_per_node = atoi(ranks_per_node[nodes]);
    for (enum verb verb = DISPATCH; verb < VERBS; verb++)
        compare(comms[nodes], &s, verb);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("transports");
    TCase *tcase = tcase_create("same bytes");

    tcase_add_unchecked_fixture(tcase, open_comms, close_comms);
    tcase_add_loop_test(tcase, all_transports_give_the_same_bytes, 0, 16);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
