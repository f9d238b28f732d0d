/* SPDX-License-Identifier: BSD-3-Clause */
/* test_waits.c - EPX_Comm_get_waits tells which ranks come late, and how late. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/exchange.h"
#include "support/suite.h"

enum { OPERATIONS = 10, ROUNDS = 5, LATE_RANKS = 3, MOST_RANKS = 64 };

static EPX_Comm comm;

/* A persistent exchange of a few rows, which is all that these tests call. */
static struct exchange x;

static void open_comm(void)
{
    comm = suite_comm(NULL);
    x = (struct exchange){.comm = comm, .data = {5, EPX_FLOAT32, 16, DATA_BYTES}, .most_rows = 4};
    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    SETTLE();
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Request_free(&x.request), EPX_SUCCESS);
    exchange_free(&x);
    suite_free_comm(&comm);
}

struct waits {
    uint64_t ns[MOST_RANKS], operations[MOST_RANKS];
};

static struct waits get_waits(void)
{
    struct waits w;
    EPX_Waits waits = EPX_WAITS_INIT;

    waits.ns = w.ns;
    waits.operations = w.operations;
    EXPECT_CODE(EPX_Comm_get_waits(comm, &waits), EPX_SUCCESS);
    EXPECT(waits.num_ranks == suite_size, "num_ranks is %d", waits.num_ranks);
    return w;
}

/* Is away for so long, as if it computed. */
static void be_late(double seconds)
{
    double end = suite_seconds() + seconds;

    if (seconds > 1e-3)
        usleep((useconds_t)(seconds * 1e6));
    while (suite_seconds() < end)
        continue;
}

static void run_operation(double late)
{
    be_late(late);
    EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&x.request, MPI_STATUS_IGNORE), EPX_SUCCESS);
}

/* What all ranks together have waited since `before`: the sums over the ranks. */
static struct waits sum_since(const struct waits *before)
{
    struct waits now = get_waits(), sum;

    for (int r = 0; r < suite_size; r++) {
        now.ns[r] -= before->ns[r];
        now.operations[r] -= before->operations[r];
    }
    MPI_Allreduce(now.ns, sum.ns, suite_size, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(now.operations, sum.operations, suite_size, MPI_UINT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
    return sum;
}

static int rank_of_most(const uint64_t *sums)
{
    int most = 0;

    for (int r = 1; r < suite_size; r++)
        if (sums[r] > sums[most])
            most = r;
    return most;
}

/* Whether one rank, which is late for some operations, is named by both counters. */
static int is_named(int late_rank, double late)
{
    struct waits before, sum;

    run_operation(0);
    MPI_Barrier(MPI_COMM_WORLD);
    before = get_waits();
    for (int i = 0; i < OPERATIONS; i++)
        run_operation(suite_rank == late_rank ? late : 0);
    sum = sum_since(&before);
    return rank_of_most(sum.ns) == late_rank && rank_of_most(sum.operations) == late_rank;
}

/* Whether every rank is named in most rounds in which it is late. */
static int all_are_named(double late)
{
    for (int r = 0; r < suite_size; r++) {
        int named = 0;

        for (int i = 0; i < ROUNDS; i++)
            named += is_named(r, late);
        if (named < ROUNDS - 1)
            return 0;
    }
    return 1;
}

/* Times from 50 us on. Ranks that share CPUs, with each other or other programs, wait for these for
 * milliseconds: there a rank must be later to be the last. */
static const double delays[] = {50e-6, 200e-6, 1e-3, 4e-3, 16e-3, 50e-3};
enum { DELAYS = sizeof(delays) / sizeof(delays[0]) };

static double first_delay(int (*holds)(double late))
{
    for (int i = 0; i < DELAYS; i++)
        if (holds(delays[i])) {
            if (suite_rank == 0)
                printf("after %.0f us\n", delays[i] * 1e6);
            return delays[i];
        }
    return -1;
}

START_TEST(a_late_rank_is_named_within_10_operations)
{
    EXPECT(first_delay(all_are_named) > 0, "late ranks are not named");
    SETTLE();
}
END_TEST

/* Rank 0 is never late, ranks 1 to 3 are at random: on an average by one, three, and nine times the
 * same. Returns whether the sums on rank 0 are in that order. */
static int are_told_apart(double late)
{
    static uint64_t seed = 7;
    const int operations = 4 * OPERATIONS;
    double mean = suite_rank == 1 ? late : suite_rank == 2 ? 3 * late : 9 * late;
    struct waits before, after;
    int apart;

    seed++;
    run_operation(0);
    MPI_Barrier(MPI_COMM_WORLD);
    before = get_waits();
    for (int i = 0; i < operations; i++) {
        int share = data_below(seed, (uint64_t)suite_rank, (uint64_t)i, 2001);

        run_operation(suite_rank >= 1 && suite_rank <= LATE_RANKS ? mean * share / 1000 : 0);
    }
    after = get_waits();
    for (int r = 0; r < suite_size; r++)
        after.ns[r] -= before.ns[r];
    apart = after.ns[1] > 0 && after.ns[1] < after.ns[2] && after.ns[2] < after.ns[3];
    MPI_Bcast(&apart, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return apart;
}

START_TEST(three_ranks_late_at_random_are_told_apart)
{
    if (suite_size > LATE_RANKS)
        EXPECT(first_delay(are_told_apart) > 0, "late ranks are not told apart");
    SETTLE();
}
END_TEST

/* Nanoseconds that this rank counts for all others while it is away between call and wait, as all
 * ranks are. */
static uint64_t count_while_away(double away)
{
    struct waits before = get_waits(), after;
    uint64_t sum = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
    be_late(away);
    EXPECT_CODE(EPX_Wait(&x.request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    run_operation(0);
    after = get_waits();
    for (int r = 0; r < suite_size; r++)
        sum += after.ns[r] - before.ns[r];
    return sum;
}

START_TEST(time_between_calls_is_no_wait)
{
    const double away = 0.2;
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t counted = count_while_away(away);

        least = counted < least ? counted : least;
    }
    EXPECT((double)least < away * 1e9 / 2, "%llu ns counted while this rank was away",
           (unsigned long long)least);
    SETTLE();
}
END_TEST

START_TEST(a_rank_does_not_wait_for_itself)
{
    struct waits w;

    for (int i = 0; i < OPERATIONS; i++)
        run_operation(0);
    w = get_waits();
    EXPECT(w.ns[suite_rank] == 0 && w.operations[suite_rank] == 0, "%llu ns, %llu operations",
           (unsigned long long)w.ns[suite_rank], (unsigned long long)w.operations[suite_rank]);
    SETTLE();
}
END_TEST

static Suite *make(void)
{
    Suite *suite = suite_create("waits");
    TCase *tcase = tcase_create("waits");

    suite_add_fixture(tcase, open_comm, close_comm);
    if (suite_size > MOST_RANKS)
        suite_skip("too many ranks");
    if (suite_size > 1)
        tcase_add_test(tcase, a_late_rank_is_named_within_10_operations);
    tcase_add_test(tcase, three_ranks_late_at_random_are_told_apart);
    tcase_add_test(tcase, time_between_calls_is_no_wait);
    tcase_add_test(tcase, a_rank_does_not_wait_for_itself);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make);
}
