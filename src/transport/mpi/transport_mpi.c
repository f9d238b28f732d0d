/* SPDX-License-Identifier: BSD-3-Clause */
/* transport_mpi.c - nonblocking MPI collectives on host buffers; works wherever MPI does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/agree.h"
#include "core/letter_liveness.h"
#include "transport/mpi/mpi_joint.h"
#include "transport/transport.h"

enum { EXCHANGE_TAG = 1 };

struct mpi {
    MPI_Comm data;
    MPI_Request *requests; /* [2 R], at least 4 */
    MPI_Status *statuses;
    int num_requests;
    struct epx_letter_liveness *liveness;
};

static int mpi_usable(struct epx_comm *comm, char *why)
{
    if (comm->by_mpi)
        return 1;
    snprintf(why, EPX_WHY_MAX, "the ranks were not started by MPI");
    return 0;
}

static void mpi_free(void *state)
{
    struct mpi *mpi = state;

    epx_letter_liveness_free(mpi->liveness);
    free(mpi->requests);
    free(mpi->statuses);
    if (mpi->data != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->data);
}

static int make_arrays(struct mpi *mpi, size_t ranks)
{
    const size_t most = 2 * ranks < 4 ? 4 : 2 * ranks;

    mpi->requests = calloc(most, sizeof(*mpi->requests));
    mpi->statuses = calloc(most, sizeof(*mpi->statuses));
    EPX_FAIL_IF(!mpi->requests || !mpi->statuses, EPX_ERR_NO_MEM, "no memory for transport mpi");
    return EPX_SUCCESS;
}

static int mpi_create(struct epx_transport *transport)
{
    struct mpi *mpi = transport->state;
    struct epx_comm *comm = transport->comm;

    mpi->data = MPI_COMM_NULL;
    EPX_TRY(epx_mpi_duplicate(comm, comm->traffic.comm, &mpi->data));
    EPX_TRY(epx_comm_agree(comm, make_arrays(mpi, (size_t)comm->size)));
    EPX_TRY(epx_comm_agree(comm, epx_letter_liveness_create(comm, &mpi->liveness)));
    transport->liveness = epx_letter_liveness_of(mpi->liveness);
    return EPX_SUCCESS;
}

static int started(struct mpi *mpi, int mpi_error, const char *call)
{
    if (mpi_error != MPI_SUCCESS)
        return epx_fail_mpi(mpi_error, call);
    mpi->num_requests++;
    return EPX_SUCCESS;
}

static MPI_Request *next_request(struct mpi *mpi)
{
    return &mpi->requests[mpi->num_requests];
}

static int mpi_allgather(void *state, const void *send, void *recv, int bytes)
{
    struct mpi *mpi = state;

    return started(
        mpi,
        MPI_Iallgather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, mpi->data, next_request(mpi)),
        "MPI_Iallgather");
}

static int mpi_alltoall(void *state, const void *send, void *recv, int bytes)
{
    struct mpi *mpi = state;

    return started(
        mpi,
        MPI_Ialltoall(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, mpi->data, next_request(mpi)),
        "MPI_Ialltoall");
}

static int mpi_alltoallv(void *state, struct epx_blocks send, struct epx_blocks recv)
{
    struct mpi *mpi = state;

    return started(mpi,
                   MPI_Ialltoallv(send.base, send.counts, send.displs, MPI_BYTE, recv.base,
                                  recv.counts, recv.displs, MPI_BYTE, mpi->data, next_request(mpi)),
                   "MPI_Ialltoallv");
}

/* Blocks of no bytes, of which both ranks know, are no messages. */
static int mpi_exchange(void *state, struct epx_some_ranks ranks, struct epx_blocks send,
                        struct epx_blocks recv)
{
    struct mpi *mpi = state;

    for (int i = 0; i < ranks.num; i++)
        if (recv.counts[i])
            EPX_TRY(started(mpi,
                            MPI_Irecv(recv.base + recv.displs[i], recv.counts[i], MPI_BYTE,
                                      ranks.rank[i], EXCHANGE_TAG, mpi->data, next_request(mpi)),
                            "MPI_Irecv"));
    for (int i = 0; i < ranks.num; i++)
        if (send.counts[i])
            EPX_TRY(started(mpi,
                            MPI_Isend(send.base + send.displs[i], send.counts[i], MPI_BYTE,
                                      ranks.rank[i], EXCHANGE_TAG, mpi->data, next_request(mpi)),
                            "MPI_Isend"));
    return EPX_SUCCESS;
}

/* With MPI_ERR_IN_STATUS the status of the request that failed has its error. */
static int first_error(int error, const MPI_Status *statuses, int num)
{
    for (int i = 0; error == MPI_ERR_IN_STATUS && i < num; i++)
        if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            error = statuses[i].MPI_ERROR;
    return error;
}

static int mpi_done(void *state, int *done)
{
    struct mpi *mpi = state;
    int num = mpi->num_requests;
    int error = MPI_Testall(num, mpi->requests, done, mpi->statuses);

    if (error != MPI_SUCCESS || *done)
        mpi->num_requests = 0;
    if (error != MPI_SUCCESS)
        return epx_fail_mpi(first_error(error, mpi->statuses, num), "MPI_Testall");
    return EPX_SUCCESS;
}

static const struct epx_message_ops mpi_messages = {
    .allgather = mpi_allgather,
    .alltoall = mpi_alltoall,
    .alltoallv = mpi_alltoallv,
    .exchange = mpi_exchange,
    .done = mpi_done,
};

const struct epx_transport_ops epx_transport_mpi = {
    .memory = EPX_MEMORY_SYSTEM,
    .usable = mpi_usable,
    .state_bytes = sizeof(struct mpi),
    .create = mpi_create,
    .free = mpi_free,
    .messages = &mpi_messages,
};
