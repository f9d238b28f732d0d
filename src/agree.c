/* SPDX-License-Identifier: BSD-3-Clause */
/* agree.c - bounded blocking collectives of the library itself. */
#include "agree.h"

#include <stdio.h>

#include "progress.h"

struct verdict {
    int32_t code;
    char message[EPX_MAX_ERROR_STRING];
};

int epx_comm_await(struct epx_comm *comm, MPI_Request *request)
{
    struct epx_clock clock = {0};
    int done = 0, idle = 0, mpi_error;

    while (!done) {
        int finished, moved;

        mpi_error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        EPX_TRY_MPI(mpi_error);
        if (done)
            break;
        epx_lock();
        moved = epx_progress();
        epx_comm_clock(comm, &clock, 0, -1);
        finished = comm->finished;
        epx_unlock();
        if (finished)
            return epx_fail_quietly(finished, comm->finish_message);
        idle = moved ? 0 : idle + 1;
        epx_progress_pause(idle);
    }
    return EPX_SUCCESS;
}

static int allreduce(struct epx_comm *comm, int64_t *values, int n, MPI_Op op)
{
    MPI_Request request;

    if (comm->finished)
        return epx_fail_quietly(comm->finished, comm->finish_message);
    EPX_TRY_MPI(MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_INT64_T, op, comm->traffic, &request));
    return epx_comm_await(comm, &request);
}

int epx_comm_agree(struct epx_comm *comm, int rc)
{
    struct verdict verdict = {rc, ""};
    int64_t first = rc == EPX_SUCCESS ? comm->size : comm->rank;
    MPI_Request request;

    snprintf(verdict.message, sizeof(verdict.message), "%s", epx_status_message());
    EPX_TRY(allreduce(comm, &first, 1, MPI_MIN));
    if (first == comm->size)
        return EPX_SUCCESS;
    EPX_TRY_MPI(MPI_Ibcast(&verdict, (int)sizeof(verdict), MPI_BYTE, (int)first, comm->traffic,
                           &request));
    EPX_TRY(epx_comm_await(comm, &request));
    return epx_fail_quietly(verdict.code, verdict.message);
}

int epx_comm_same(struct epx_comm *comm, const char *name, int64_t value)
{
    int64_t ends[2] = {value, -value};

    EPX_TRY(allreduce(comm, ends, 2, MPI_MAX));
    EPX_FAIL_IF(ends[0] != -ends[1], EPX_ERR_ARG,
                "%s differs across ranks: %lld here, from %lld to %lld", name, (long long)value,
                (long long)-ends[1], (long long)ends[0]);
    return EPX_SUCCESS;
}

int epx_comm_max(struct epx_comm *comm, int64_t value, int64_t *max)
{
    *max = value;
    return allreduce(comm, max, 1, MPI_MAX);
}

int epx_comm_allgather(struct epx_comm *comm, int64_t value, int64_t *values)
{
    MPI_Request request;

    if (comm->finished)
        return epx_fail_quietly(comm->finished, comm->finish_message);
    EPX_TRY_MPI(MPI_Iallgather(&value, 1, MPI_INT64_T, values, 1, MPI_INT64_T, comm->traffic,
                               &request));
    return epx_comm_await(comm, &request);
}
