/* SPDX-License-Identifier: BSD-3-Clause */
/* transport_mpi.c - nonblocking MPI collectives on host buffers; works wherever MPI does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/agree.h"
#include "transport/mpi/mpi_liveness.h"
#include "transport/transport.h"

enum { MAX_COLLECTIVES = 4 };

struct mpi {
    struct epx_comm *comm;
    MPI_Comm data;
    MPI_Request collectives[MAX_COLLECTIVES];
    int num_collectives;
    struct epx_mpi_liveness *liveness;
};

static int mpi_usable(struct epx_comm *comm, char *why)
{
    (void)comm;
    (void)why;
    return 1;
}

static void mpi_free(void *state)
{
    struct mpi *mpi = state;

    if (!mpi)
        return;
    epx_mpi_liveness_free(mpi->liveness);
    if (mpi->data != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->data);
    free(mpi);
}

static int mpi_create(struct epx_comm *comm, void **state)
{
    struct mpi *mpi = calloc(1, sizeof(*mpi));
    MPI_Request request;
    int rc = EPX_SUCCESS;

    *state = mpi;
    if (mpi) {
        mpi->comm = comm;
        mpi->data = MPI_COMM_NULL;
    } else {
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for transport mpi");
    }
    EPX_TRY(epx_comm_agree(comm, rc));
    EPX_TRY_COLLECTIVE(comm, MPI_Comm_idup(comm->traffic, &mpi->data, &request));
    EPX_TRY(epx_comm_await(comm, &request));
    return epx_comm_agree(comm, epx_mpi_liveness_create(comm, &mpi->liveness));
}

static int mpi_beat(void *state, uint64_t position, char *message)
{
    const struct mpi *mpi = state;

    return epx_mpi_liveness_beat(mpi->liveness, position, message);
}

static void mpi_probe(void *state)
{
    const struct mpi *mpi = state;

    epx_mpi_liveness_probe(mpi->liveness);
}

static int mpi_answered(void *state, int rank, uint64_t *position)
{
    const struct mpi *mpi = state;

    return epx_mpi_liveness_answered(mpi->liveness, rank, position);
}

static void mpi_announce(void *state, char *message)
{
    const struct mpi *mpi = state;

    epx_mpi_liveness_announce(mpi->liveness, message);
}

static int started(struct mpi *mpi, int mpi_error, const char *call)
{
    if (mpi_error != MPI_SUCCESS)
        return epx_fail_mpi(mpi_error, call);
    mpi->num_collectives++;
    return EPX_SUCCESS;
}

static MPI_Request *next_collective(struct mpi *mpi)
{
    return &mpi->collectives[mpi->num_collectives];
}

static int mpi_allgather(void *state, const void *send, void *recv, int bytes)
{
    struct mpi *mpi = state;

    return started(mpi,
                   MPI_Iallgather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, mpi->data,
                                  next_collective(mpi)),
                   "MPI_Iallgather");
}

static int mpi_alltoall(void *state, const void *send, void *recv, int bytes)
{
    struct mpi *mpi = state;

    return started(mpi,
                   MPI_Ialltoall(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, mpi->data,
                                 next_collective(mpi)),
                   "MPI_Ialltoall");
}

static int mpi_alltoallv(void *state, struct epx_blocks send, struct epx_blocks recv)
{
    struct mpi *mpi = state;

    return started(mpi,
                   MPI_Ialltoallv(send.base, send.counts, send.displs, MPI_BYTE, recv.base,
                                  recv.counts, recv.displs, MPI_BYTE, mpi->data,
                                  next_collective(mpi)),
                   "MPI_Ialltoallv");
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
    MPI_Status statuses[MAX_COLLECTIVES]; /* MPI_STATUSES_IGNORE makes compilers warn */
    int num = mpi->num_collectives;
    int error = MPI_Testall(num, mpi->collectives, done, statuses);

    if (error != MPI_SUCCESS || *done)
        mpi->num_collectives = 0;
    if (error != MPI_SUCCESS)
        return epx_fail_mpi(first_error(error, statuses, num), "MPI_Testall");
    return EPX_SUCCESS;
}

static const struct epx_liveness_ops mpi_liveness = {
    .beat = mpi_beat,
    .probe = mpi_probe,
    .answered = mpi_answered,
    .announce = mpi_announce,
};

static const struct epx_message_ops mpi_messages = {
    .allgather = mpi_allgather,
    .alltoall = mpi_alltoall,
    .alltoallv = mpi_alltoallv,
    .done = mpi_done,
};

const struct epx_transport_ops epx_transport_mpi = {
    .memory = EPX_MEMORY_SYSTEM,
    .usable = mpi_usable,
    .create = mpi_create,
    .free = mpi_free,
    .liveness = &mpi_liveness,
    .messages = &mpi_messages,
};
