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

/* Each try of a call has a time-out TIMES as long as the one before. */
enum { TIMEOUT_MS = 600, TRIES = 3, TIMES = 4, MOST_S = 8, PATIENCE_S = 60, MAX_RANKS = 8 };

struct verdict {
    _Atomic int round;  /* whose verdict it is */
    _Atomic int judged; /* the last round that this rank is through with */
    pid_t process;
    int created, first; /* codes of EPX_Comm_create and of the first operation */
    double seconds;
    double pause; /* in seconds, the longest in which this rank was kept from answering */
    char message[EPX_MAX_ERROR_STRING];
};

static struct board {
    struct verdict verdicts[MAX_RANKS];
    struct inject_begun begun; /* by the victim when it stopped */
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
static void create_and_use(int round, int nth, int timeout_ms, EPX_Comm *comm)
{
    struct verdict *mine = &board->verdicts[suite_rank];
    char bound[16];
    MPI_Info info;
    double start;
    int length;

    snprintf(bound, sizeof(bound), "%d", timeout_ms);
    info = suite_info("epx_timeout_ms", bound, "epx_window_bytes", "65536", NULL);
    inject_arm_stop(nth, &board->begun);
    MPI_Barrier(MPI_COMM_WORLD);
    start = suite_seconds();
    mine->created = EPX_Comm_create(MPI_COMM_WORLD, info, comm);
    inject_disarm();
    snprintf(mine->message, sizeof(mine->message), "%s", epx_status_message());
    mine->first = mine->created == EPX_SUCCESS ? exchange_nothing(*comm) : EPX_SUCCESS;
    if (mine->first != EPX_SUCCESS)
        EPX_Comm_get_error_message(*comm, mine->message, &length);
    mine->seconds = suite_seconds() - start;
    mine->pause = inject_longest_pause();
    atomic_store(&mine->round, round);
    MPI_Info_free(&info);
}

/* Whether a rank that lived was kept from answering for more than a tenth of the time-out: others
 * may have taken it for the one that stopped, or not have heard of it. */
static int was_kept(int victim, int timeout_ms)
{
    double most = 0;

    for (int r = 0; r < suite_size; r++)
        if (r != victim && board->verdicts[r].pause > most)
            most = board->verdicts[r].pause;
    return 1e3 * most > 0.1 * timeout_ms;
}

static int is_over_sockets(void)
{
    const char *control = getenv("EPX_CONTROL");

    return control && strcmp(control, "sockets") == 0;
}

/* Whether the others could hear the victim, and miss it, when it stopped: once the first agreement
 * is over, in which MPI may wait for any rank, or from the second duplication of the communicator
 * on, if sockets were to be connected. */
static int could_be_heard(void)
{
    return is_over_sockets() ? atomic_load(&board->begun.duplications) > 1
                             : atomic_load(&board->begun.agreements) > 0;
}

/*
 * Expects one verdict of all that lived. It names the victim, unless that stopped before it could
 * be heard, when nobody can tell which rank it was; or unless the machine was so busy that a rank
 * that lived was silent as well. Returns 0 in the latter case, in which the call is to be tried
 * again with more time, unless this was the last try.
 */
static int judge(int nth, int victim, int timeout_ms, int last_try)
{
    const struct verdict *mine = &board->verdicts[suite_rank];
    int known = could_be_heard(), is_named;
    char named[64];

    snprintf(named, sizeof(named), "rank %d did not answer within %d ms", victim, timeout_ms);
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
    EXPECT(is_named || (!last_try && was_kept(victim, timeout_ms)),
           "call %d of rank %d: \"%s\"; the longest pause here took %.0f ms", nth, victim,
           mine->message, 1e3 * mine->pause);
    EXPECT(mine->seconds < MOST_S + 3e-3 * timeout_ms, "call %d of rank %d: %.1f s", nth, victim,
           mine->seconds);
    return is_named;
}

static int is_bad(const struct verdict *verdict)
{
    return verdict->created != EPX_SUCCESS || verdict->first != EPX_SUCCESS;
}

/* Wakes the victim up until it comes to its verdict: on a busy machine it may not have stopped yet
 * when the others take it for stopped. */
static void wake(int round, int victim)
{
    const struct timespec nap = {0, 10000000};
    double start = suite_seconds();

    while (atomic_load(&board->verdicts[victim].round) < round &&
           suite_seconds() - start < PATIENCE_S) {
        kill(board->verdicts[victim].process, SIGCONT);
        nanosleep(&nap, NULL);
    }
}

enum stop { STOP_NONE, STOP_NAMED, STOP_UNNAMED };

/* Tells whether the victim had an nth call to stop before, and whether all others named it. */
static enum stop stop_at(int nth, int victim, int timeout_ms, int last_try)
{
    static int round;
    EPX_Comm comm = EPX_COMM_NULL;
    struct verdict *mine = &board->verdicts[suite_rank];
    int stop = STOP_NONE;

    round++;
    create_and_use(round, suite_rank == victim ? nth : 0, timeout_ms, &comm);
    if (suite_rank != victim) {
        await(round, victim, 0);
        if (is_bad(mine))
            stop = judge(nth, victim, timeout_ms, last_try) ? STOP_NAMED : STOP_UNNAMED;
        atomic_store(&mine->judged, round);
    }
    if (suite_rank == (victim + 1) % suite_size) {
        await(round, victim, 1);
        wake(round, victim);
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

/* Tries a call again, with more time, if the machine was too busy for the others to name the
 * victim. */
static int stops_at(int nth, int victim)
{
    enum stop stop = STOP_UNNAMED;
    int timeout_ms = TIMEOUT_MS;

    for (int i = 1; stop == STOP_UNNAMED && i <= TRIES; i++, timeout_ms *= TIMES) {
        stop = stop_at(nth, victim, timeout_ms, i == TRIES);
        if (stop == STOP_UNNAMED && suite_rank == 0)
            printf("call %d of rank %d: a busy machine, not named within %d ms\n", nth, victim,
                   timeout_ms);
    }
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
    EXPECT(num * step > (is_over_sockets() ? 15 : 30), "stopped %d times only", num);
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
