/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_stopped.c - a rank stops (SIGSTOP) before each of its calls of MPI in EPX_Comm_create. All
 * others come to one verdict within the bound, and it names the rank. It is an error of
 * EPX_Comm_create, or of the first operation after it. STOP_EVERY=n leaves out all but every nth of
 * these calls.
 *
 * Ranks leave their verdicts in memory that all of them map: in MPI they would wait for the rank
 * that is stopped.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "faults/board.h"
#include "faults/inject.h"
#include "support/suite.h"

enum { TIMEOUT_MS = 600, MOST_S = 8, PATIENCE_S = 40, TRIES = 3, MAX_RANKS = 8 };

struct verdict {
    _Atomic int round;  /* whose verdict it is */
    _Atomic int judged; /* the last round that this rank is through with */
    pid_t process;
    int created, first; /* codes of EPX_Comm_create and of the first operation */
    double seconds;
    char message[EPX_MAX_ERROR_STRING];
};

static struct board {
    struct verdict verdicts[MAX_RANKS];
    _Atomic int agreements; /* that the victim had begun when it stopped */
} * board;

/* Waits until all ranks but one have come to their verdicts, or have judged them. */
static int await(int round, int all_but, int judged)
{
    double start = suite_seconds();
    const struct timespec nap = {0, 2000000};
    int missing = 1;

    while (missing && suite_seconds() - start < PATIENCE_S) {
        missing = 0;
        for (int r = 0; r < suite_size; r++) {
            struct verdict *verdict = &board->verdicts[r];

            missing +=
                r != all_but && atomic_load(judged ? &verdict->judged : &verdict->round) < round;
        }
        nanosleep(&nap, NULL);
    }
    return EXPECT(!missing, "%d ranks came to no verdict", missing);
}

/* The first operation; it moves no rows. */
static int exchange_nothing(EPX_Comm comm)
{
    static const int64_t zeros[MAX_RANKS];
    static int64_t counts[MAX_RANKS], displs[MAX_RANKS];
    EPX_Request request;
    int code = EPX_Alltoallv(NULL, zeros, zeros, NULL, counts, displs, 0, 1, EPX_BYTE, comm,
                             EPX_STREAM_NULL, &request);

    return code == EPX_SUCCESS ? EPX_Wait(&request, MPI_STATUS_IGNORE) : code;
}

/* Makes a communicator, in which this rank stops at its nth call of MPI, and uses it. */
static void create_and_use(int round, int nth, EPX_Comm *comm)
{
    struct verdict *mine = &board->verdicts[suite_rank];
    MPI_Info info = suite_info("epx_timeout_ms", "600", "epx_window_bytes", "65536", NULL);
    double start;
    int length;

    MPI_Barrier(MPI_COMM_WORLD);
    start = suite_seconds();
    inject_arm_stop(nth, &board->agreements);
    mine->created = EPX_Comm_create(MPI_COMM_WORLD, info, comm);
    inject_disarm();
    snprintf(mine->message, sizeof(mine->message), "%s", epx_status_message());
    mine->first = mine->created == EPX_SUCCESS ? exchange_nothing(*comm) : EPX_SUCCESS;
    if (mine->first != EPX_SUCCESS)
        EPX_Comm_get_error_message(*comm, mine->message, &length);
    mine->seconds = suite_seconds() - start;
    atomic_store(&mine->round, round);
    MPI_Info_free(&info);
}

/*
 * Expects one verdict of all that lived. Of a rank that stopped before it could be heard nobody can
 * tell which it was; nor can a rank that within the bound has not heard of one that lives, because
 * the machine is busy. So the verdict need not name a rank if the call is to be tried again; it may
 * name no other. Returns whether it names the rank.
 */
static int judge(int nth, int victim, int last_try)
{
    const struct verdict *mine = &board->verdicts[suite_rank];
    int known = atomic_load(&board->agreements) > 0, is_named;
    char named[64], unheard[64];

    snprintf(unheard, sizeof(unheard), "not all %d ranks came", suite_size);
    snprintf(named, sizeof(named), "rank %d did not answer within %d ms", victim, TIMEOUT_MS);
    for (int r = 0; r < suite_size; r++) {
        const struct verdict *other = &board->verdicts[r];

        EXPECT(r == victim || other->created == mine->created,
               "call %d of rank %d: EPX_Comm_create gave %d here, %d on rank %d", nth, victim,
               mine->created, other->created, r);
    }
    EXPECT(mine->created == EPX_ERR_TIMEOUT || mine->first == EPX_ERR_TIMEOUT,
           "call %d of rank %d: EPX_Comm_create gave %d, the first operation %d", nth, victim,
           mine->created, mine->first);
    is_named = !known || strstr(mine->message, named) != NULL;
    EXPECT(is_named || (!last_try && strstr(mine->message, unheard)), "call %d of rank %d: \"%s\"",
           nth, victim, mine->message);
    if (!is_named)
        printf("call %d of rank %d: \"%s\", once more\n", nth, victim, mine->message);
    EXPECT(mine->seconds < MOST_S, "call %d of rank %d: %.1f s", nth, victim, mine->seconds);
    return is_named;
}

static int is_bad(const struct verdict *verdict)
{
    return verdict->created != EPX_SUCCESS || verdict->first != EPX_SUCCESS;
}

enum stop { STOP_NONE, STOP_NAMED, STOP_UNNAMED };

/* Tells whether the victim had an nth call to stop before, and whether all others named it. */
static enum stop stop_at(int nth, int victim, int last_try)
{
    static int round;
    EPX_Comm comm = EPX_COMM_NULL;
    struct verdict *mine = &board->verdicts[suite_rank];
    int stop = STOP_NONE;

    round++;
    create_and_use(round, suite_rank == victim ? nth : 0, &comm);
    if (suite_rank != victim) {
        await(round, victim, 0);
        if (is_bad(mine))
            stop = judge(nth, victim, last_try) ? STOP_NAMED : STOP_UNNAMED;
        atomic_store(&mine->judged, round);
    }
    if (suite_rank == (victim + 1) % suite_size) {
        await(round, victim, 1);
        kill(board->verdicts[victim].process, SIGCONT);
    }
    await(round, -1, 0);
    if (suite_rank == victim && is_bad(mine))
        stop = STOP_NAMED;
    inject_catch_up();
    if (comm != EPX_COMM_NULL)
        EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    MPI_Allreduce(MPI_IN_PLACE, &stop, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return (enum stop)stop;
}

/* Tries a call again if the verdict did not name the victim. */
static int stops_at(int nth, int victim)
{
    enum stop stop = STOP_UNNAMED;

    for (int i = 1; stop == STOP_UNNAMED && i <= TRIES; i++)
        stop = stop_at(nth, victim, i == TRIES);
    return stop != STOP_NONE;
}

START_TEST(all_others_come_to_one_verdict_about_a_rank_that_stops)
{
    const char *every = getenv("STOP_EVERY");
    int step = every ? atoi(every) : 7, nth = 1 + _i % step, num = 0;

    board = board_open(sizeof(*board));
    board->verdicts[suite_rank].process = getpid();
    MPI_Barrier(MPI_COMM_WORLD);
    for (; stops_at(nth, _i); nth += step) {
        num++;
        SETTLE();
    }
    EXPECT(num * step > 30, "stopped %d times only", num);
    SETTLE();
    if (suite_rank == 0)
        printf("rank %d stopped %d times\n", _i, num);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("stopped");
    TCase *tcase = tcase_create("each call in turn");

    tcase_add_loop_test(tcase, all_others_come_to_one_verdict_about_a_rank_that_stops, 0,
                        suite_size);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
