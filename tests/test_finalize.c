/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_finalize.c - a rank enters MPI_Finalize with an operation in flight: its peers, who wait
 * for it, learn so at once and not when the bound is over. No Check here: its reports would
 * need the rank that is gone. Each rank answers with its exit code.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "suite.h"

enum { ELEMENTS = 1 << 20, PATIENCE_S = 20 };

/* One row of 4 MB for each rank, through windows of 64 KB: not done in one pass. */
struct traffic {
    float *send, *recv;
    int64_t sendcounts[64], sdispls[64], recvcounts[64], rdispls[64];
    EPX_Request request;
};

static int start(struct traffic *traffic, EPX_Comm comm)
{
    traffic->send = calloc((size_t)suite_size * ELEMENTS, sizeof(float));
    traffic->recv = calloc((size_t)suite_size * ELEMENTS, sizeof(float));
    for (int r = 0; r < suite_size; r++) {
        traffic->sendcounts[r] = 1;
        traffic->sdispls[r] = r;
    }
    return EPX_Alltoallv(traffic->send, traffic->sendcounts, traffic->sdispls, traffic->recv,
                         traffic->recvcounts, traffic->rdispls, suite_size, ELEMENTS, EPX_FLOAT32,
                         comm, EPX_STREAM_NULL, &traffic->request);
}

/* Comes last, so that the others are in the middle of it, and goes at once. */
static void leave_early(struct traffic *traffic, EPX_Comm comm)
{
    const struct timespec nap = {0, 300000000};

    nanosleep(&nap, NULL);
    EXPECT_CODE(start(traffic, comm), EPX_SUCCESS);
}

static void be_left(struct traffic *traffic, EPX_Comm comm)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    double began = suite_seconds();
    int length;

    EXPECT_CODE(start(traffic, comm), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&traffic->request, MPI_STATUS_IGNORE), EPX_ERR_TIMEOUT);
    EXPECT(suite_seconds() - began < PATIENCE_S, "took %.1f s", suite_seconds() - began);
    EXPECT_CODE(EPX_Comm_get_error_message(comm, message, &length), EPX_SUCCESS);
    EXPECT(strstr(message, "MPI_Finalize") != NULL, "\"%s\" does not tell why", message);
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
    if (suite_rank == leaver)
        leave_early(&traffic, comm);
    else
        be_left(&traffic, comm);
    MPI_Finalize();
    free(traffic.send);
    free(traffic.recv);
    if (suite_rank == witness)
        printf(suite_own_complaints() ? " Found 1 errors\n" : " No Errors\n");
    return suite_own_complaints() ? EXIT_FAILURE : EXIT_SUCCESS;
}
