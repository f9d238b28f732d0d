/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_lost.c - under mpiexec the last LOST ranks, one if unset, are killed during operations; the
 * others shrink the communicator, go on, and free all that they had.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults/board.h"
#include "support/space.h"
#include "support/suite.h"

enum { TIMEOUT_MS = 3000, BYTES = 1 << 16, MOST_RANKS = 64, OPERATIONS = 100000 };
enum verdict { VERDICT_OPEN, VERDICT_GOOD, VERDICT_BAD };

static _Atomic int *verdicts; /* [suite_size] */

static int num_lost(void)
{
    const char *text = getenv("LOST");
    int lost = text ? atoi(text) : 1;

    return lost < suite_size ? lost : suite_size - 1;
}

/* Rows of an exchange, and where they are in the memory space of the run. */
static struct rows {
    int64_t counts[4][MOST_RANKS];
    int32_t sent[MOST_RANKS], received[MOST_RANKS];
} rows, *place;

/* One row of each rank to each other one; every rank knows what it is. */
static int exchange(EPX_Comm comm)
{
    EPX_Request request;
    int rank, size, rc;

    EPX_Comm_rank(comm, &rank);
    EPX_Comm_size(comm, &size);
    for (int r = 0; r < size; r++) {
        rows.counts[0][r] = 1;
        rows.counts[1][r] = r;
        rows.sent[r] = rank * MOST_RANKS + r;
    }
    space_put(place, &rows, sizeof(rows));
    rc = EPX_Alltoallv(place->sent, place->counts[0], place->counts[1], place->received,
                       place->counts[2], place->counts[3], MOST_RANKS, 1, EPX_FLOAT32, comm,
                       EPX_STREAM_NULL, &request);
    if (rc == EPX_SUCCESS)
        rc = EPX_Wait(&request, MPI_STATUS_IGNORE);
    space_get(&rows, place, sizeof(rows));
    for (int r = 0; rc == EPX_SUCCESS && r < size; r++)
        EXPECT(rows.received[r] == r * MOST_RANKS + rank, "%d from rank %d", rows.received[r], r);
    return rc;
}

static void fill(char *memory)
{
    char image[BYTES];

    memset(image, suite_rank, BYTES);
    space_put(memory, image, BYTES);
}

static void expect_filled(const char *memory)
{
    char image[BYTES];

    space_get(image, memory, BYTES);
    for (int i = 0; i < BYTES; i++)
        if (!EXPECT(image[i] == suite_rank, "byte %d has changed", i))
            break;
}

static void go_on(EPX_Comm old, char *memory)
{
    int ranks[MOST_RANKS], size = 0, rc = EPX_SUCCESS;
    EPX_Comm comm = EPX_COMM_NULL;

    for (int i = 0; i < OPERATIONS && rc == EPX_SUCCESS; i++)
        rc = exchange(old);
    EXPECT(rc == EPX_ERR_TIMEOUT, "error %d", rc);
    if (!EXPECT_CODE(EPX_Comm_shrink(old, &comm), EPX_SUCCESS))
        return;
    EXPECT_CODE(EPX_Comm_size(comm, &size), EPX_SUCCESS);
    EXPECT(size == suite_size - num_lost(), "%d ranks", size);
    EXPECT_CODE(EPX_Comm_get_ranks(comm, ranks), EPX_SUCCESS);
    for (int r = 0; r < size; r++)
        EXPECT(ranks[r] == r, "rank %d was %d", r, ranks[r]);
    for (int i = 0; i < 10; i++)
        EXPECT_CODE(exchange(comm), EPX_SUCCESS);
    expect_filled(memory);
    EXPECT_CODE(EPX_Free_mem(memory, old), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&old), EPX_SUCCESS);
    EXPECT_CODE(exchange(comm), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
}

/* Rank 0 waits for what the others that live have to say. */
static int collect(void)
{
    const double end = suite_seconds() + 30;
    int open = 1, bad = 0;

    while (open && suite_seconds() < end) {
        open = bad = 0;
        for (int r = 0; r < suite_size - num_lost(); r++) {
            open += atomic_load(&verdicts[r]) == VERDICT_OPEN;
            bad += atomic_load(&verdicts[r]) == VERDICT_BAD;
        }
        suite_sleep_ms(10);
    }
    return open + bad;
}

int main(int argc, char **argv)
{
    char timeout[16];
    char *memory = NULL;
    EPX_Comm comm;

    suite_init(&argc, &argv);
    verdicts = board_open(MOST_RANKS * sizeof(*verdicts));
    snprintf(timeout, sizeof(timeout), "%d", TIMEOUT_MS);
    comm = suite_comm("epx_timeout_ms", timeout, NULL);
    EXPECT_CODE(EPX_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), EPX_SUCCESS);
    EXPECT_CODE(EPX_Alloc_mem(BYTES, comm, &memory), EPX_SUCCESS);
    fill(memory);
    place = space_alloc(sizeof(*place));
    for (int i = 0; i < 10; i++)
        EXPECT_CODE(exchange(comm), EPX_SUCCESS);
    if (suite_rank >= suite_size - num_lost())
        raise(SIGKILL);
    go_on(comm, memory);
    atomic_store(&verdicts[suite_rank], suite_own_complaints() ? VERDICT_BAD : VERDICT_GOOD);
    if (suite_rank == 0) {
        int errors = collect();

        printf(errors ? " Found %d errors\n" : " No Errors\n", errors);
        fflush(stdout);
    }
    _exit(0);
}
