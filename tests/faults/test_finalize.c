/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_finalize.c - a rank enters MPI_Finalize with an operation in flight. Its peers, who wait for
 * it, learn so at once and not when the bound is over; on a device the operation goes on, and they
 * get their rows. All ranks leave a persistent request, too. The program does not use Check, whose
 * reports would need the rank that is gone: each rank answers with its exit code.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/space.h"
#include "support/suite.h"

enum { ELEMENTS = 1 << 20, PATIENCE_S = 20 };

/* One row of 4 MB for each rank, through windows of 64 KB: not done in one pass. */
struct traffic {
    float *send, *recv, *image;
    int64_t *sendcounts, *sdispls, *recvcounts, *rdispls;
    size_t bytes; /* of send, recv, image */
    EPX_Request request, persistent;
};

static int64_t *new_counts(int64_t first, int64_t step)
{
    int64_t image[64], *counts = space_alloc(sizeof(image));

    for (int r = 0; r < 64; r++)
        image[r] = first + r * step;
    space_put(counts, image, sizeof(image));
    return counts;
}

/* Every element that a rank sends is its number. */
static void prepare(struct traffic *traffic)
{
    size_t elements = (size_t)suite_size * ELEMENTS;

    traffic->bytes = elements * sizeof(float);
    traffic->image = malloc(traffic->bytes);
    for (size_t i = 0; i < elements; i++)
        traffic->image[i] = (float)(suite_rank + 1);
    traffic->send = space_alloc(traffic->bytes);
    traffic->recv = space_alloc(traffic->bytes);
    space_put(traffic->send, traffic->image, traffic->bytes);
    traffic->sendcounts = new_counts(1, 0);
    traffic->sdispls = new_counts(0, 1);
    traffic->recvcounts = new_counts(0, 0);
    traffic->rdispls = new_counts(0, 0);
}

static void free_traffic(struct traffic *traffic)
{
    space_free(traffic->send);
    space_free(traffic->recv);
    space_free(traffic->sendcounts);
    space_free(traffic->sdispls);
    space_free(traffic->recvcounts);
    space_free(traffic->rdispls);
    free(traffic->image);
}

static int start(struct traffic *traffic, EPX_Comm comm)
{
    return EPX_Alltoallv(traffic->send, traffic->sendcounts, traffic->sdispls, traffic->recv,
                         traffic->recvcounts, traffic->rdispls, suite_size, ELEMENTS, EPX_FLOAT32,
                         comm, EPX_STREAM_NULL, &traffic->request);
}

static int leave_persistent(struct traffic *traffic, EPX_Comm comm)
{
    return EPX_Alltoallv_init(traffic->send, traffic->sendcounts, traffic->sdispls, traffic->recv,
                              traffic->recvcounts, traffic->rdispls, suite_size, ELEMENTS,
                              EPX_FLOAT32, comm, EPX_STREAM_NULL, EPX_FIXED_COUNTS,
                              &traffic->persistent);
}

/* Calls last, so that the others are in the middle of the operation, and leaves at once. */
static void leave_early(struct traffic *traffic, EPX_Comm comm)
{
    const struct timespec nap = {0, 300000000};

    nanosleep(&nap, NULL);
    EXPECT_CODE(start(traffic, comm), EPX_SUCCESS);
}

static void check_rows(struct traffic *traffic)
{
    size_t i = 0;

    space_get(traffic->image, traffic->recv, traffic->bytes);
    while (i < traffic->bytes / sizeof(float) && traffic->image[i] == (float)(i / ELEMENTS + 1))
        i++;
    EXPECT(i == traffic->bytes / sizeof(float), "element %zu is wrong", i);
}

static void check_message(EPX_Comm comm)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    int length;

    EXPECT_CODE(EPX_Comm_get_error_message(comm, message, &length), EPX_SUCCESS);
    EXPECT(strstr(message, "MPI_Finalize") != NULL, "\"%s\" does not tell why", message);
}

static void be_left(struct traffic *traffic, EPX_Comm comm)
{
    int wanted = space_is_device() ? EPX_SUCCESS : EPX_ERR_TIMEOUT;
    double began = suite_seconds();

    EXPECT_CODE(start(traffic, comm), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&traffic->request, MPI_STATUS_IGNORE), wanted);
    EXPECT(suite_seconds() - began < PATIENCE_S, "took %.1f s", suite_seconds() - began);
    if (space_is_device())
        check_rows(traffic);
    else
        check_message(comm);
}

int main(int argc, char **argv)
{
    static struct traffic traffic;
    EPX_Comm comm;
    int leaver, witness;

    suite_init(&argc, &argv);
    leaver = suite_size == 2 ? 0 : suite_size - 1;
    witness = suite_size == 2 ? 1 : 0;
    comm = suite_comm("epx_timeout_ms", "120000", "epx_window_bytes", "65536", NULL);
    prepare(&traffic);
    EXPECT_CODE(leave_persistent(&traffic, comm), EPX_SUCCESS);
    if (suite_rank == leaver)
        leave_early(&traffic, comm);
    else
        be_left(&traffic, comm);
    MPI_Finalize();
    free_traffic(&traffic);
    if (suite_rank == witness)
        printf(suite_own_complaints() ? " Found 1 errors\n" : " No Errors\n");
    return suite_own_complaints() ? EXIT_FAILURE : EXIT_SUCCESS;
}
