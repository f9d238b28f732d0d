/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_ranks.c - the ranks of a communicator that MPI started, and how they agree beside EPX. */
#include <stdlib.h>
#include <time.h>

#include "mpi/mpi_parts.h"

enum { PAUSE_NS = 50000 };

struct epx_python_ranks {
    MPI_Group group;
    MPI_Comm agreement; /* MPI_COMM_NULL before it is wanted, and once it was left */
};

int epx_python_ranks_of(MPI_Comm comm, struct epx_python_ranks **ranks)
{
    struct epx_python_ranks *made = calloc(1, sizeof(*made));

    if (!made)
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for a communicator");
    MPI_Comm_group(comm, &made->group);
    made->agreement = MPI_COMM_NULL;
    *ranks = made;
    return EPX_SUCCESS;
}

void epx_python_ranks_free(struct epx_python_ranks *ranks)
{
    if (!ranks)
        return;
    MPI_Group_free(&ranks->group);
    if (ranks->agreement != MPI_COMM_NULL)
        MPI_Comm_free(&ranks->agreement);
    free(ranks);
}

int epx_python_agreement_open(struct epx_python_ranks *ranks, int64_t timeout_ms)
{
    int rc;

    if (ranks->agreement != MPI_COMM_NULL)
        return EPX_SUCCESS;
    rc = epx_python_group_comm(ranks->group, EPX_PYTHON_FOR_AGREEMENT, timeout_ms,
                               &ranks->agreement);
    if (rc == EPX_SUCCESS)
        MPI_Comm_set_errhandler(ranks->agreement, MPI_ERRORS_RETURN);
    return rc;
}

void epx_python_agreement_leave(struct epx_python_ranks *ranks)
{
    ranks->agreement = MPI_COMM_NULL;
}

/* Waits for at most the time-out. */
static int await(MPI_Request *request, int64_t timeout_ms)
{
    const struct timespec pause = {0, PAUSE_NS};
    const int64_t start = epx_python_now_ns();
    int done = 0;

    while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        if (timeout_ms && epx_python_now_ns() - start > timeout_ms * 1000000)
            return epx_python_fail(EPX_ERR_TIMEOUT, "close: not all ranks came within %lld ms",
                                   (long long)timeout_ms);
        nanosleep(&pause, NULL);
    }
    return done ? EPX_SUCCESS : epx_python_fail(EPX_ERR_MPI, "close: MPI_Iallgather failed");
}

int epx_python_agree(const struct epx_python_ranks *ranks, int64_t *numbers, int64_t timeout_ms)
{
    MPI_Request request;
    int size;

    if (ranks->agreement == MPI_COMM_NULL)
        return epx_python_fail(EPX_ERR_TIMEOUT, "close: not all ranks came to an earlier one");
    MPI_Comm_size(ranks->agreement, &size);
    if (MPI_Iallgather(&numbers[size], 1, MPI_INT64_T, numbers, 1, MPI_INT64_T, ranks->agreement,
                       &request) != MPI_SUCCESS)
        return epx_python_fail(EPX_ERR_MPI, "close: MPI_Iallgather failed");
    return await(&request, timeout_ms);
}
