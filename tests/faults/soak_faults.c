/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soak_faults.c - random operations while a rank sleeps, stops (SIGSTOP, SIGCONT), or dies. In each
 * step one rank, the victim, does one of these before one of its calls of EPX. SOAK_SEED says which
 * rank, before which of its calls, and what; SOAK_STEPS how many steps. A rank that is away for
 * less than the time-out changes nothing: all bytes are right. In the last step the victim is
 * killed or stopped for longer: every other rank gets EPX_ERR_TIMEOUT and the victim's name, and so
 * does the victim if it comes back.
 *
 * Each rank has a helper process, which wakes it up when it has stopped itself.
 */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "faults/board.h"
#include "fields/fields.h"
#include "support/exchange.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { TIMEOUT_MS = 3000, SHORT_MS = 400, LONG_MS = 3 * TIMEOUT_MS, MOST_S = 15 };
enum { OPERATIONS = 5, REQUESTS = OPERATIONS + 3, MOST_TESTS = 12, MOST_CALLS = 24 };
enum { MAX_RANKS = 64, PATIENCE_S = 60, MOST_PAIRS = 8192, MOST_BYTES = 64 << 20 };

enum what { NOTHING, SLEEP, STOP, STOP_LONG, KILL };

static const char *const names[] = {"nothing", "sleep", "stop", "stop for long", "kill"};

/* What happens in a step. */
struct fault {
    enum what what;
    int victim, call, ms;
};

enum verdict { OPEN, GOOD, BAD };

static _Atomic int *verdicts;  /* [ranks] */
static int helper[2], back[2]; /* pipes: how many milliseconds to stop; the helper is through */
static struct fault fault;
static int calls; /* of EPX in this step */

/* Wakes the rank up until it tells that it is awake: the first time may come before it stops. */
static void help(pid_t rank)
{
    struct pollfd awake = {.fd = helper[0], .events = POLLIN};
    int ms;

    close(helper[1]);
    while (read(helper[0], &ms, sizeof(ms)) == (ssize_t)sizeof(ms)) {
        poll(NULL, 0, ms);
        do
            kill(rank, SIGCONT);
        while (poll(&awake, 1, 10) == 0);
        if (read(helper[0], &ms, sizeof(ms)) > 0 && write(back[1], &ms, sizeof(ms)) < 0)
            perror("helper");
    }
    _exit(0);
}

static void start_helper(void)
{
    pid_t rank = getpid();

    if (pipe(helper) != 0 || pipe(back) != 0 || fork() == 0)
        help(rank);
    close(helper[0]);
    close(back[1]);
}

/* Returns when the helper wakes no more: else it might end a later stop. */
static void stop_for(int ms)
{
    if (write(helper[1], &ms, sizeof(ms)) < 0)
        return;
    raise(SIGSTOP);
    if (write(helper[1], &ms, sizeof(ms)) < 0 || read(back[0], &ms, sizeof(ms)) < 0)
        perror("rank");
}

/* Stands before every call of EPX in a step. */
static void point(void)
{
    struct timespec time = {fault.ms / 1000, (long)(fault.ms % 1000) * 1000000};

    if (calls++ != fault.call || fault.victim != suite_rank)
        return;
    if (fault.what == SLEEP)
        nanosleep(&time, NULL);
    else if (fault.what == STOP || fault.what == STOP_LONG)
        stop_for(fault.ms);
    else if (fault.what == KILL)
        kill(getpid(), SIGKILL);
}

static int pick(uint64_t seed, int what, int below)
{
    return data_below(seed, 401, (uint64_t)what, below);
}

static struct fault choose_fault(uint64_t seed, int is_last)
{
    struct fault chosen = {.victim = pick(seed, 1, suite_size), .call = pick(seed, 2, MOST_CALLS)};

    if (is_last) {
        chosen.what = pick(seed, 3, 2) ? KILL : STOP_LONG;
        chosen.ms = LONG_MS;
        chosen.call = pick(seed, 2, REQUESTS); /* all ranks make so many calls */
    } else {
        chosen.what = (enum what)pick(seed, 3, 3);
        chosen.ms = 1 + pick(seed, 4, SHORT_MS);
    }
    return chosen;
}

/* One routing, behind it operations and a dispatch of fields, and an exchange. */
struct work {
    struct layer layer;
    struct routing routing;
    struct operation ops[OPERATIONS];
    struct fields fields;
    struct exchange exchange;
};

/* One whose operations take far less than the time-out, also on the emulated GPU. */
static struct scenario choose_scenario(uint64_t seed)
{
    struct scenario scenario;
    size_t pairs;

    for (uint64_t i = 0;; i++) {
        scenario = scenario_random(data_hash(seed, 4, i));
        scenario_add_tokens(&scenario, seed + i, 2);
        pairs = (size_t)scenario.max_tokens * (size_t)scenario.top_k;
        if (pairs <= MOST_PAIRS && pairs * scenario_row_bytes(&scenario) <= MOST_BYTES)
            return scenario;
    }
}

/* Preparing may take longer than the time-out: all ranks are through before one makes a call. */
static void prepare(struct work *work, EPX_Comm comm, uint64_t seed)
{
    struct scenario scenario = choose_scenario(seed);
    const char *per_node = getenv("EPX_RANKS_PER_NODE");
    struct field_kind kinds[EPX_MAX_FIELDS];
    int num;

    memset(work, 0, sizeof(*work));
    scenario.ranks_per_node = per_node ? atoi(per_node) : 0;
    layer_open(&work->layer, &scenario, comm);
    routing_prepare(&work->routing, &work->layer, seed + 1);
    for (int i = 0; i < OPERATIONS; i++)
        operation_prepare(&work->ops[i], &work->routing, (enum verb)pick(seed, 10 + i, VERBS),
                          seed + 2 + (uint64_t)i);
    num = fields_random(kinds, &scenario, seed);
    fields_prepare(&work->fields, &work->routing, kinds, num, seed);
    work->exchange.comm = comm;
    work->exchange.data = (struct data){seed, EPX_BYTE, 1 + pick(seed, 5, 300), DATA_BYTES};
    work->exchange.most_rows = pick(seed, 6, 40);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void discard(struct work *work)
{
    for (int i = 0; i < OPERATIONS; i++)
        operation_free(&work->ops[i]);
    fields_free(&work->fields);
    exchange_free(&work->exchange);
    routing_free(&work->routing);
    layer_close(&work->layer);
}

/* The nth call of a step, and the request and code that it leads to. */
static int call_nth(struct work *work, int n)
{
    point();
    if (n == 0)
        return routing_call(&work->routing);
    if (n <= OPERATIONS)
        return operation_call(&work->ops[n - 1]);
    if (n == OPERATIONS + 1)
        return fields_call(&work->fields, 0);
    return exchange_start(&work->exchange);
}

static EPX_Request *nth_request(struct work *work, int n)
{
    if (n == 0)
        return &work->routing.request;
    if (n <= OPERATIONS)
        return &work->ops[n - 1].request;
    return n == OPERATIONS + 1 ? &work->fields.request : &work->exchange.request;
}

static int nth_code(const struct work *work, int n)
{
    if (n == 0)
        return routing_code(&work->routing);
    if (n <= OPERATIONS + 1)
        return work->routing.ref->truncated ? EPX_ERR_TRUNCATE : EPX_SUCCESS;
    return exchange_code(&work->exchange);
}

static void check_nth(struct work *work, int n)
{
    if (n > OPERATIONS + 1)
        exchange_check(&work->exchange);
    else if (work->routing.ref->truncated)
        return;
    else if (n == 0)
        routing_check(&work->routing);
    else if (n <= OPERATIONS)
        operation_check(&work->ops[n - 1]);
    else
        fields_check(&work->fields);
}

/* Tests requests for a while, so that the victim may leave in the middle of an operation. */
static void test_some(struct work *work, uint64_t seed, int *codes)
{
    int tests = pick(seed, 7 + 100 * suite_rank, MOST_TESTS);

    for (int i = 0; i < tests; i++) {
        int n = pick(seed, 20 + i, REQUESTS), done = 0, code;
        EPX_Request *request = nth_request(work, n);

        if (*request == EPX_REQUEST_NULL)
            continue;
        point();
        code = EPX_Test(request, &done, MPI_STATUS_IGNORE);
        codes[n] = done ? code : codes[n];
    }
}

/* Calls all and waits for all; codes[n] is the code that the nth operation had. */
static void work_through(struct work *work, uint64_t seed, int *codes)
{
    calls = 0;
    for (int n = 0; n < REQUESTS; n++)
        codes[n] = call_nth(work, n);
    test_some(work, seed, codes);
    for (int n = 0; n < REQUESTS; n++)
        if (*nth_request(work, n) != EPX_REQUEST_NULL) {
            point();
            codes[n] = EPX_Wait(nth_request(work, n), MPI_STATUS_IGNORE);
        }
}

static void take_step(EPX_Comm comm, uint64_t seed)
{
    static struct work work;
    int codes[REQUESTS];

    prepare(&work, comm, seed);
    work_through(&work, seed, codes);
    for (int n = 0; n < REQUESTS; n++)
        if (EXPECT(codes[n] == nth_code(&work, n), "operation %d gave %d", n, codes[n]))
            check_nth(&work, n);
    discard(&work);
}

/* Every operation was through before the victim left, or ended with the one verdict. */
static void take_last_step(EPX_Comm comm, uint64_t seed)
{
    static struct work work;
    struct exchange later = {.comm = comm, .data = {5, EPX_BYTE, 16, 0}, .most_rows = 3};
    int codes[REQUESTS], ended = 0, code, length;
    char message[EPX_MAX_ERROR_STRING] = "", named[32];
    double start;

    prepare(&work, comm, seed);
    start = suite_seconds();
    work_through(&work, seed, codes);
    for (int n = 0; n < REQUESTS; n++) {
        ended |= codes[n] == EPX_ERR_TIMEOUT;
        if (codes[n] != EPX_ERR_TIMEOUT && !ended &&
            EXPECT(codes[n] == nth_code(&work, n), "operation %d gave %d", n, codes[n]))
            check_nth(&work, n);
        EXPECT(!ended || codes[n] == EPX_ERR_TIMEOUT, "operation %d gave %d after a time-out", n,
               codes[n]);
    }
    code = exchange_start(&later);
    if (code == EPX_SUCCESS)
        code = EPX_Wait(&later.request, MPI_STATUS_IGNORE);
    EXPECT(code == EPX_ERR_TIMEOUT, "a later operation gave %d", code);
    EPX_Comm_get_error_message(comm, message, &length);
    snprintf(named, sizeof(named), "rank %d ", fault.victim);
    EXPECT(strstr(message, named), "\"%s\" does not name rank %d", message, fault.victim);
    EXPECT(suite_seconds() - start < MOST_S, "took %.1f s", suite_seconds() - start);
    exchange_free(&later);
    discard(&work);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
}

/* Waits for the verdicts of all that live; returns the number of bad ones. */
static int collect(void)
{
    const struct timespec nap = {0, 10000000};
    double start = suite_seconds();
    int bad = 0, open = 1;

    while (open && suite_seconds() - start < PATIENCE_S) {
        open = bad = 0;
        for (int r = 0; r < suite_size; r++) {
            open += verdicts[r] == OPEN && (r != fault.victim || fault.what != KILL);
            bad += verdicts[r] == BAD;
        }
        nanosleep(&nap, NULL);
    }
    return bad + open;
}

static void leave(void)
{
    verdicts[suite_rank] = suite_own_complaints() ? BAD : GOOD;
    if (suite_rank == (fault.victim == 0)) {
        int errors = collect();

        printf(errors ? " Found %d errors\n" : " No Errors\n", errors);
        fflush(stdout);
    }
    collect(); /* a rank that leaves early is missed by MPI of another */
    _exit(0);
}

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoll(text, NULL, 0) : otherwise;
}

static void announce(int step)
{
    if (suite_rank == 0)
        printf("step %d: rank %d, before call %d: %s, %d ms\n", step, fault.victim, fault.call,
               names[fault.what], fault.ms);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    uint64_t seed = (uint64_t)setting("SOAK_SEED", (int64_t)time(NULL));
    int steps = (int)setting("SOAK_STEPS", 6);
    EPX_Comm comm;

    start_helper();
    suite_init(&argc, &argv);
    verdicts = board_open(MAX_RANKS * sizeof(*verdicts));
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (suite_rank == 0)
        printf("SOAK_SEED=%llu SOAK_STEPS=%d on %d ranks\n", (unsigned long long)seed, steps,
               suite_size);
    comm = suite_comm("epx_timeout_ms", "3000", "epx_window_bytes", "65536", NULL);
    EXPECT_CODE(EPX_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), EPX_SUCCESS);
    for (int step = 0; step < steps; step++) {
        uint64_t step_seed = data_hash(seed, 400, (uint64_t)step);

        fault = choose_fault(step_seed, step == steps - 1);
        announce(step);
        if (step == steps - 1)
            take_last_step(comm, step_seed);
        else
            take_step(comm, step_seed);
        if (step == steps - 1)
            leave();
        if (suite_complaints()) {
            if (suite_rank == 0)
                printf(" Found 1 errors\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    leave();
}
