/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_letter_liveness.c - who is blamed: the rank that answers no letters, not one that waits for
 * it; and that a letter comes whose sender makes no call of MPI behind it.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/comm.h"
#include "support/suite.h"
#include "core/letter_liveness.h"

enum { MUTE = 2, LISTENS_MS = 400 };

static const char all[] = {1, 1, 1}, but_the_mute[] = {1, 1, 0};
static EPX_Comm comm;
static struct epx_letter_liveness *liveness;

static void open_letters(void)
{
    comm = suite_comm(NULL);
    EXPECT_CODE(epx_letter_liveness_create(comm, &liveness), EPX_SUCCESS);
    SETTLE();
}

static void close_letters(void)
{
    SETTLE();
    epx_letter_liveness_free(liveness);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

/* Answers all who ask. */
static void listen(void)
{
    char message[EPX_MAX_ERROR_STRING];
    double start = suite_seconds();

    while (suite_seconds() - start < 1e-3 * LISTENS_MS) {
        EXPECT(!epx_letter_liveness_beat(liveness, 7, message), "an end that nobody announced");
        sched_yield();
    }
}

static void expect_blame(int suspect, const char *suspects, int culprit)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    double start = suite_seconds();
    int blamed = epx_letter_liveness_blame(liveness, suspect, suspects, message);

    EXPECT(blamed == culprit, "rank %d is blamed, not %d", blamed, culprit);
    EXPECT(suite_seconds() - start < .8, "took %.2f s", suite_seconds() - start);
}

START_TEST(who_answers_is_not_to_blame_if_another_does_not)
{
    if (suite_rank == 0)
        expect_blame(1, all, MUTE);
    else if (suite_rank != MUTE)
        listen();
}
END_TEST

START_TEST(who_is_no_suspect_need_not_answer)
{
    if (suite_rank == 0)
        expect_blame(1, but_the_mute, 1);
    else if (suite_rank != MUTE)
        listen();
}
END_TEST

START_TEST(who_does_not_answer_is_to_blame)
{
    if (suite_rank == 0)
        expect_blame(MUTE, all, MUTE);
    else if (suite_rank != MUTE)
        listen();
}
END_TEST

START_TEST(a_suspect_stays_one_if_all_answer)
{
    if (suite_rank == 0)
        expect_blame(MUTE, all, MUTE);
    else
        listen();
}
END_TEST

START_TEST(the_reason_of_another_rank_comes_first)
{
    char message[EPX_MAX_ERROR_STRING] = "";

    if (suite_rank == 1)
        epx_letter_liveness_announce(liveness, "rank 1 has a reason");
    SETTLE();
    if (suite_rank != 1) {
        EXPECT(epx_letter_liveness_blame(liveness, 1, all, message) == -1, "nobody's reason came");
        EXPECT(strcmp(message, "rank 1 has a reason") == 0, "\"%s\"", message);
    }
}
END_TEST

/* Hears the end that another rank announces, within the time. */
static void expect_end(const char *wanted, int within_ms)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    double start = suite_seconds();
    int ended = 0;

    while (!ended && suite_seconds() - start < 1e-3 * within_ms) {
        ended = epx_letter_liveness_beat(liveness, 0, message);
        sched_yield();
    }
    EXPECT(ended && strcmp(message, wanted) == 0, "the end is \"%s\"", message);
}

/*
 * The mute rank is away while another sends it a long message, the first one, and gives it up; when
 * it is back the other makes no calls of MPI.
 */
START_TEST(an_end_does_not_wait_behind_a_long_message)
{
    enum { LONG_BYTES = 1 << 20, AWAY_MS = 300, HEARS_MS = 1500, TAG = 77 };
    char *data = calloc(1, LONG_BYTES);
    MPI_Request request = MPI_REQUEST_NULL;

    ck_assert(data);
    if (suite_rank == 0) {
        MPI_Isend(data, LONG_BYTES, MPI_BYTE, MUTE, TAG, comm->traffic.comm, &request);
        epx_letter_liveness_announce(liveness, "rank 0 has given up");
        suite_sleep_ms(AWAY_MS + 2 * HEARS_MS);
    } else if (suite_rank == MUTE) {
        suite_sleep_ms(AWAY_MS);
        expect_end("rank 0 has given up", HEARS_MS);
        MPI_Irecv(data, LONG_BYTES, MPI_BYTE, 0, TAG, comm->traffic.comm, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(data);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("mpi_liveness");
    TCase *tcase = tcase_create("mpi_liveness");

    tcase_add_checked_fixture(tcase, open_letters, close_letters);
    tcase_add_test(tcase, who_answers_is_not_to_blame_if_another_does_not);
    tcase_add_test(tcase, who_is_no_suspect_need_not_answer);
    tcase_add_test(tcase, who_does_not_answer_is_to_blame);
    tcase_add_test(tcase, a_suspect_stays_one_if_all_answer);
    tcase_add_test(tcase, the_reason_of_another_rank_comes_first);
    tcase_add_test(tcase, an_end_does_not_wait_behind_a_long_message);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
