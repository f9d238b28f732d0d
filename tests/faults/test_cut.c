/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_cut.c - the link of a node is cut in the middle of a dispatch. If it comes back within the
 * bound the dispatch completes; if not, every rank learns within the bound that a rank on the other
 * side is silent, frees what it has, makes no other communicator, and leaves. With SHRINK set the
 * link does not come back, and each side goes on by itself. MPI can no longer tell what other ranks
 * found, so each rank answers with its exit code.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/fault.h"
#include "support/operation.h"
#include "support/suite.h"

enum { TIMEOUT_MS = 3000, CUT_S = 1, PATIENCE_S = 10 };

/* Every rank has rows for every other, too long for one pass. */
static struct scenario long_rows(void)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.tokens = TOKENS_FULL;
    s.experts = suite_size;
    s.top_k = 4 * suite_size;
    s.max_tokens = 1;
    s.capacity_percent = 100;
    s.count = 1 << 18;
    return s;
}

static long orders_obeyed(void)
{
    FILE *log = fopen(getenv("NODE_OBEYED"), "r");
    long lines = 0;
    int c;

    while (log && (c = getc(log)) != EOF)
        lines += c == '\n';
    if (log)
        fclose(log);
    return lines;
}

/* Cuts the link, for so many seconds, for good if they are 0; returns when it is cut. */
static void cut_last_node(int seconds)
{
    const struct timespec nap = {0, 1000000};
    long before = orders_obeyed();
    double start = suite_seconds();
    FILE *orders = fopen(getenv("NODE_ORDERS"), "w");

    if (!EXPECT(orders != NULL, "nobody takes orders"))
        return;
    fprintf(orders, "cut %d %.0d\n", suite_nodes[suite_size - 1], seconds);
    fclose(orders);
    while (orders_obeyed() == before && suite_seconds() - start < PATIENCE_S)
        nanosleep(&nap, NULL);
    EXPECT(orders_obeyed() > before, "the link is not cut");
}

/* Starts a dispatch that cannot complete before the link is cut: rank 0, for which all wait, calls
 * only then. */
static void start_dispatch(struct operation *op, struct routing *routing, int cut_seconds)
{
    operation_prepare(op, routing, DISPATCH, 5);
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank == 0)
        cut_last_node(cut_seconds);
    EXPECT_CODE(operation_call(op), EPX_SUCCESS);
}

static int dispatch_works(struct routing *routing)
{
    struct operation op;
    int works = EXPECT_CODE(operation_start(&op, routing, DISPATCH, 6), EPX_SUCCESS) &&
                operation_finish(&op);

    operation_free(&op);
    return works;
}

/* Whether everything goes on as before. */
static int be_cut_for_a_while(struct routing *routing)
{
    struct operation op;
    double start;
    int works;

    start_dispatch(&op, routing, CUT_S);
    start = suite_seconds();
    works = operation_finish(&op);
    if (suite_rank == 0)
        works &= EXPECT(suite_seconds() - start > .8 * CUT_S, "the cut link was not missed");
    operation_free(&op);
    return works && dispatch_works(routing);
}

static void expect_other_side_named(EPX_Comm comm)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    int length, last = suite_nodes[suite_size - 1], rank = -1;
    const char *name;

    EXPECT_CODE(EPX_Comm_get_error_message(comm, message, &length), EPX_SUCCESS);
    name = strstr(message, "rank ");
    if (EXPECT(name && sscanf(name, "rank %d", &rank) == 1 && rank >= 0 && rank < suite_size,
               "\"%s\" names no rank", message))
        EXPECT((suite_nodes[rank] == last) != (suite_nodes[suite_rank] == last),
               "\"%s\" names a rank on this side", message);
}

static void be_cut_off(EPX_Comm comm, struct operation *op)
{
    double start = suite_seconds(), seconds;

    EXPECT_FAULT(comm, EPX_Wait(&op->request, MPI_STATUS_IGNORE), EPX_ERR_TIMEOUT);
    seconds = suite_seconds() - start;
    EXPECT(seconds < 1e-3 * TIMEOUT_MS + 2, "took %.1f s", seconds);
    expect_other_side_named(comm);
}

/* Lists the ranks of this side of the cut in order; returns their number. */
static int find_side(int *ranks)
{
    int last = suite_nodes[suite_size - 1], size = 0;

    for (int r = 0; r < suite_size; r++)
        if ((suite_nodes[r] == last) == (suite_nodes[suite_rank] == last))
            ranks[size++] = r;
    return size;
}

/* The communicator has the ranks of this side and no others. Returns this rank's place there. */
static int expect_side(EPX_Comm comm, const int *side, int size)
{
    int *ranks = calloc((size_t)suite_size, sizeof(*ranks)), num = 0, place = -1;

    EXPECT_CODE(EPX_Comm_size(comm, &num), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_rank(comm, &place), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_get_ranks(comm, ranks), EPX_SUCCESS);
    EXPECT(num == size, "%d ranks go on, not %d", num, size);
    for (int i = 0; i < num && i < size; i++)
        EXPECT(ranks[i] == side[i], "rank %d was %d, not %d", i, ranks[i], side[i]);
    EXPECT(place >= 0 && place < num && ranks[place] == suite_rank, "this rank is %d", place);
    free(ranks);
    return place;
}

/* The suite takes the ranks of this side for all that there are. */
static void dispatch_on_side(EPX_Comm comm, const int *side, int size, int place)
{
    int *nodes = suite_nodes, rank = suite_rank, all = suite_size;
    struct scenario s = scenario_small(EPX_FLOAT32);
    struct routing routing;
    struct layer layer;

    suite_nodes = calloc((size_t)size, sizeof(*suite_nodes));
    for (int i = 0; i < size; i++)
        suite_nodes[i] = nodes[side[i]];
    suite_rank = place;
    suite_size = size;
    layer_open(&layer, &s, comm);
    EXPECT_CODE(routing_start(&routing, &layer, s.seed), EPX_SUCCESS);
    EXPECT(routing_finish(&routing) && dispatch_works(&routing), "this side does not go on");
    routing_free(&routing);
    layer_close(&layer);
    free(suite_nodes);
    suite_nodes = nodes;
    suite_rank = rank;
    suite_size = all;
}

static void go_on_alone(EPX_Comm comm)
{
    int *side = calloc((size_t)suite_size, sizeof(*side)), size = find_side(side);
    double start = suite_seconds(), seconds;
    EPX_Comm smaller = EPX_COMM_NULL;

    if (EXPECT_CODE(EPX_Comm_shrink(comm, &smaller), EPX_SUCCESS)) {
        seconds = suite_seconds() - start;
        EXPECT(seconds < 2e-3 * TIMEOUT_MS + 2, "took %.1f s", seconds);
        dispatch_on_side(smaller, side, size, expect_side(smaller, side, size));
        EXPECT_CODE(EPX_Comm_free(&smaller), EPX_SUCCESS);
    }
    free(side);
}

static void leave(EPX_Comm comm, struct operation *op)
{
    double start = suite_seconds(), seconds;

    EXPECT_CODE(operation_call(op), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&op->request, MPI_STATUS_IGNORE), EPX_ERR_TIMEOUT);
    EXPECT_CODE(EPX_Route_free(&op->routing->layer->route), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    seconds = suite_seconds() - start;
    EXPECT(seconds < 1, "what came after took %.1f s", seconds);
}

static void make_none_cut_off(void)
{
    MPI_Info info = suite_info("epx_timeout_ms", "1000", NULL);
    double start = suite_seconds(), seconds;
    EPX_Comm comm;

    EXPECT_CODE(EPX_Comm_create(MPI_COMM_WORLD, info, &comm), EPX_ERR_TIMEOUT);
    seconds = suite_seconds() - start;
    MPI_Info_free(&info);
    EXPECT(seconds < 3, "took %.1f s", seconds);
}

int main(int argc, char **argv)
{
    const int shrinks = getenv("SHRINK") != NULL;
    struct operation op;
    struct routing routing;
    struct scenario s;
    struct layer layer;
    EPX_Comm comm;

    suite_init(&argc, &argv);
    if (!getenv("NODE_ORDERS") || !getenv("NODE_OBEYED"))
        suite_skip("only simulated nodes can be cut off");
    s = long_rows();
    comm = suite_comm("epx_timeout_ms", "3000", "epx_window_bytes", "65536", NULL);
    fault_watch(comm);
    layer_open(&layer, &s, comm);
    EXPECT_CODE(routing_start(&routing, &layer, s.seed), EPX_SUCCESS);
    routing_finish(&routing);
    if (shrinks || be_cut_for_a_while(&routing)) {
        start_dispatch(&op, &routing, 0);
        be_cut_off(comm, &op);
        if (shrinks)
            go_on_alone(comm);
        leave(comm, &op);
        if (!shrinks)
            make_none_cut_off();
    }
    MPI_Finalize();
    if (suite_rank == 0)
        printf(suite_own_complaints() ? " Found 1 errors\n" : " No Errors\n");
    return suite_own_complaints() ? EXIT_FAILURE : EXIT_SUCCESS;
}
