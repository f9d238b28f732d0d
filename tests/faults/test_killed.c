/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_killed.c - a rank dies in the middle of a dispatch whose rows go through a stage in rounds.
 * With CASE=routed it is an EPX_Route_dispatch; with CASE=large its rows go straight to where they
 * belong; with CASE=small it is one of many short operations in flight. The survivors must learn
 * within the bound which rank it was, complete everything in flight, and free what they have. Over
 * sockets they learn it at once, however long the time-out is. MPI is of no use afterwards: the
 * survivors leave their verdicts in memory that all of them map.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "faults/board.h"
#include "support/exchange.h"
#include "support/fault.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { TIMEOUT_MS = 2000, LONG_TIMEOUT_MS = 30000, AT_ONCE_S = 2 };
enum { PATIENCE_S = 60, MAX_RANKS = 64 };
/* Operations that the survivors have in flight; of short ones the victim calls most. */
enum { FEW = 5, MANY = 45, VICTIMS = 40 };

enum verdict { VERDICT_OPEN, VERDICT_GOOD, VERDICT_BAD };

static _Atomic int *verdicts;

static int is_case(const char *name)
{
    const char *what = getenv("CASE");

    return what && strcmp(what, name) == 0;
}

/* Whether a killed rank is known by its closed socket. */
static int is_over_sockets(void)
{
    const char *control = getenv("EPX_CONTROL");

    return control && strcmp(control, "sockets") == 0;
}

static int num_in_flight(void)
{
    return is_case("small") ? MANY : FEW;
}

static struct scenario scenario_of_case(void)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.tokens = TOKENS_FULL;
    s.experts = 4 * suite_size;
    s.top_k = 4;
    s.max_tokens = is_case("small") ? 8 : 2;
    s.capacity_percent = 100;
    s.count = is_case("small") ? 136 : is_case("large") ? 1 << 18 : 1 << 20;
    s.row_bytes_known = is_case("large");
    s.memory = is_case("large") ? MEMORY_WINDOW : MEMORY_MALLOC;
    return s;
}

/* Dies as soon as it has moved a part of its rows, and before it has moved all. Where several
 * operations are in flight, or no call of the library moves rows, it does not look. */
static void die(struct operation *op)
{
    int flag = 0;

    for (int i = 0; i < 5 && !flag; i++)
        EPX_Test(&op->request, &flag, MPI_STATUS_IGNORE);
    if (!flag || is_case("small") || is_case("large"))
        kill(getpid(), SIGKILL);
    fprintf(stderr, "the dispatch was over before the rank could die\n");
    atomic_store(&verdicts[suite_rank], VERDICT_BAD);
}

static int call(struct operation *op, int i)
{
    int routed = (is_case("routed") && i == 0) || (is_case("small") && i % (2 * VERBS) == 0);

    return routed ? operation_route_call(op) : operation_call(op);
}

/* Waits for an operation; whether it ended well, which it may if the dead rank's part was done
 * before. */
static int wait_for(EPX_Comm comm, EPX_Request *request, int may_end_well, const char *message)
{
    char again[EPX_MAX_ERROR_STRING] = "";
    MPI_Status status;
    int length, code;

    fault_begin();
    code = EPX_Wait(request, &status);
    EXPECT(*request == EPX_REQUEST_NULL, "request not nulled");
    EXPECT(status.MPI_ERROR == code, "status has error %d, not %d", status.MPI_ERROR, code);
    if (code == EPX_SUCCESS && may_end_well)
        return 1;
    fault_end(__FILE__, __LINE__, "EPX_Wait", code, EPX_ERR_TIMEOUT, comm);
    EXPECT_CODE(EPX_Comm_get_error_message(comm, again, &length), EPX_SUCCESS);
    EXPECT(!message || strcmp(message, again) == 0, "\"%s\", not \"%s\"", again, message);
    return 0;
}

static void expect_victim_named(EPX_Comm comm, char *message)
{
    char text[32];
    int length;

    snprintf(text, sizeof(text), "rank %d ", suite_size - 1);
    fault_message_has(comm, text);
    EXPECT_CODE(EPX_Comm_get_error_message(comm, message, &length), EPX_SUCCESS);
}

static void expect_refused(EPX_Comm comm, struct layer *layer)
{
    struct exchange later = {.comm = comm, .data = {5, EPX_BYTE, 16, 0}, .most_rows = 3};
    int code = exchange_start(&later);
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route;
    void *base;

    if (code == EPX_SUCCESS)
        code = EPX_Wait(&later.request, MPI_STATUS_IGNORE);
    EXPECT(code == EPX_ERR_TIMEOUT, "a later operation gave %d", code);
    attr.num_experts = attr.top_k = attr.max_tokens = 1;
    EXPECT_CODE(EPX_Route_create(&attr, comm, &route), EPX_ERR_TIMEOUT);
    EXPECT_CODE(EPX_Alloc_mem(64, comm, &base), EPX_ERR_TIMEOUT);
    EXPECT_CODE(EPX_Route_free(&layer->route), EPX_SUCCESS);
}

static void survive(EPX_Comm comm, struct layer *layer, struct operation *ops, void *base)
{
    const int num = num_in_flight(), goes_on = space_is_device() || is_case("small");
    char message[EPX_MAX_ERROR_STRING] = "";
    double start = suite_seconds(), seconds;
    int first = 0;

    /* The GPU of a process that died goes on for a while, and what it has sent is there. */
    while (wait_for(comm, &ops[first].request, goes_on && first < num - 1, NULL))
        first++;
    seconds = suite_seconds() - start;
    EXPECT(seconds < (is_over_sockets() ? AT_ONCE_S : 4 * 1e-3 * TIMEOUT_MS + 4), "took %.1f s",
           seconds);
    expect_victim_named(comm, message);
    start = suite_seconds();
    for (int i = num - 1; i > first; i--)
        wait_for(comm, &ops[i].request, 0, message);
    expect_refused(comm, layer);
    EXPECT_CODE(EPX_Free_mem(base, comm), EPX_SUCCESS);
    for (int i = 0; i < num && is_case("large"); i++)
        operation_free(&ops[i]); /* memory of the communicator */
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    seconds = suite_seconds() - start;
    /* Behind the first error no call waits a whole time-out for the dead rank; each of many small
     * operations gets 0.1 s. */
    EXPECT(seconds < 0.9e-3 * TIMEOUT_MS + 0.1 * (num - FEW), "what came after took %.1f s",
           seconds);
}

/* Rank 0 speaks for all survivors. */
static int collect(void)
{
    double start = suite_seconds();
    int bad = 0, open = 1;

    while (open && suite_seconds() - start < PATIENCE_S) {
        const struct timespec nap = {0, 10000000};

        open = bad = 0;
        for (int r = 0; r < suite_size - 1; r++) {
            open += atomic_load(&verdicts[r]) == VERDICT_OPEN;
            bad += atomic_load(&verdicts[r]) == VERDICT_BAD;
        }
        bad += atomic_load(&verdicts[suite_size - 1]) != VERDICT_OPEN;
        nanosleep(&nap, NULL);
    }
    return bad + open;
}

static void leave(void)
{
    atomic_store(&verdicts[suite_rank], suite_own_complaints() ? VERDICT_BAD : VERDICT_GOOD);
    if (suite_rank == 0) {
        int errors = collect();

        printf(errors ? " Found %d errors\n" : " No Errors\n", errors);
        fflush(stdout);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    static struct operation ops[MANY];
    struct scenario s;
    struct routing routing;
    struct layer layer;
    void *base = NULL;
    char timeout[16];
    EPX_Comm comm;
    int num;

    suite_init(&argc, &argv);
    verdicts = board_open(MAX_RANKS * sizeof(*verdicts));
    s = scenario_of_case();
    snprintf(timeout, sizeof(timeout), "%d", is_over_sockets() ? LONG_TIMEOUT_MS : TIMEOUT_MS);
    comm = suite_comm("epx_timeout_ms", timeout, "epx_window_bytes", "65536", NULL);
    fault_watch(comm);
    layer_open(&layer, &s, comm);
    EXPECT_CODE(EPX_Alloc_mem(1000, comm, &base), EPX_SUCCESS);
    EXPECT_CODE(routing_start(&routing, &layer, s.seed), EPX_SUCCESS);
    routing_finish(&routing);
    num = num_in_flight();
    for (int i = 0; i < num; i++)
        operation_prepare(&ops[i], &routing, (enum verb)(i % VERBS), 5);
    if (suite_rank == suite_size - 1)
        num = is_case("small") ? VICTIMS : 1;
    MPI_Barrier(MPI_COMM_WORLD); /* preparing takes long: nobody is late with its calls */
    for (int i = 0; i < num; i++)
        EXPECT_CODE(call(&ops[i], i), EPX_SUCCESS);
    if (suite_rank == suite_size - 1)
        die(&ops[0]);
    else
        survive(comm, &layer, ops, base);
    leave();
}
