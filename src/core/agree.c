/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * agree.c - bounded blocking collectives of the library itself. What MPI reads and writes lies
 * in the communicator's agreement, not on the stack: a collective that is given up may still
 * complete later, and a communicator that gave up is buried, never freed.
 */
#include "core/agree.h"

#include <stdio.h>
#include <string.h>

#include "base/pause.h"
#include "core/progress.h"

/* Ends the communicator after MPI failed in a collective. The peers are in that collective or will
 * be, and nobody knows in what state it and MPI are. */
int epx_comm_break(struct epx_comm *comm, int mpi_error, const char *call)
{
    char message[EPX_MAX_ERROR_STRING];
    int rc = epx_fail_mpi(mpi_error, call);

    epx_status_locate(comm->rank, message);
    epx_lock();
    epx_comm_give_up(comm, message);
    epx_unlock();
    return epx_fail_quietly(rc, message);
}

static void count_waiting(struct epx_comm *comm, int change)
{
    epx_lock();
    comm->awaited += change;
    epx_comm_relist(comm);
    epx_unlock();
}

static int await(struct epx_comm *comm, MPI_Request *request)
{
    struct epx_clock clock = {0};
    int done = 0, idle = 0;

    for (;;) {
        int finished, moved;

        EPX_TRY_COLLECTIVE(comm, MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (done)
            return EPX_SUCCESS;
        epx_lock();
        moved = epx_progress();
        epx_comm_clock(comm, &clock, 0, -1);
        finished = comm->finished;
        epx_unlock();
        if (finished)
            return epx_fail_quietly(finished, comm->finish_message);
        idle = moved ? 0 : idle + 1;
        epx_pause(idle);
    }
}

int epx_comm_await(struct epx_comm *comm, MPI_Request *request)
{
    int rc;

    count_waiting(comm, 1);
    rc = await(comm, request);
    count_waiting(comm, -1);
    return rc;
}

static int check_alive(struct epx_comm *comm)
{
    int finished;

    epx_lock();
    finished = comm->finished;
    epx_unlock();
    return finished ? epx_fail_quietly(finished, comm->finish_message) : EPX_SUCCESS;
}

int epx_comm_pass(struct epx_comm *comm)
{
    epx_lock();
    epx_progress();
    epx_unlock();
    return check_alive(comm);
}

static int allreduce(struct epx_comm *comm, int n, MPI_Op op)
{
    MPI_Request request;

    EPX_TRY(check_alive(comm));
    EPX_TRY_COLLECTIVE(comm, MPI_Iallreduce(MPI_IN_PLACE, comm->agreement.value, n, MPI_INT64_T, op,
                                            comm->traffic, &request));
    return epx_comm_await(comm, &request);
}

int epx_comm_agree(struct epx_comm *comm, int rc)
{
    struct epx_agreement *agreement = &comm->agreement;
    MPI_Request request;

    agreement->code = rc;
    snprintf(agreement->message, sizeof(agreement->message), "%s", epx_status_message());
    agreement->value[0] = rc == EPX_SUCCESS ? comm->size : comm->rank;
    EPX_TRY(allreduce(comm, 1, MPI_MIN));
    if (agreement->value[0] == comm->size)
        return EPX_SUCCESS;
    EPX_TRY_COLLECTIVE(comm,
                       MPI_Ibcast(agreement, (int)offsetof(struct epx_agreement, value), MPI_BYTE,
                                  (int)agreement->value[0], comm->traffic, &request));
    EPX_TRY(epx_comm_await(comm, &request));
    return epx_fail_quietly(agreement->code, agreement->message);
}

/* The least and the largest value of all ranks. */
static int find_ends(struct epx_comm *comm, int64_t value, int64_t *least, int64_t *most)
{
    int64_t *ends = comm->agreement.value;

    ends[0] = value;
    ends[1] = ~value;
    EPX_TRY(allreduce(comm, 2, MPI_MAX));
    *least = ~ends[1];
    *most = ends[0];
    return EPX_SUCCESS;
}

int epx_comm_equal(struct epx_comm *comm, int64_t value, int *equal)
{
    int64_t least, most;

    EPX_TRY(find_ends(comm, value, &least, &most));
    *equal = least == most;
    return EPX_SUCCESS;
}

int epx_comm_same(struct epx_comm *comm, const char *name, int64_t value)
{
    return epx_comm_same_word(comm, name, value, NULL);
}

int epx_comm_same_word(struct epx_comm *comm, const char *name, int64_t value,
                       const char *const *words)
{
    int64_t least, most;

    EPX_TRY(find_ends(comm, value, &least, &most));
    if (least == most)
        return EPX_SUCCESS;
    EPX_FAIL_IF(words, EPX_ERR_ARG, "%s differs across ranks: %s here, %s on one, %s on another",
                name, words[value], words[least], words[most]);
    return epx_fail(EPX_ERR_ARG, "%s differs across ranks: %lld here, from %lld to %lld", name,
                    (long long)value, (long long)least, (long long)most);
}

int epx_comm_max(struct epx_comm *comm, int64_t value, int64_t *max)
{
    comm->agreement.value[0] = value;
    EPX_TRY(allreduce(comm, 1, MPI_MAX));
    *max = comm->agreement.value[0];
    return EPX_SUCCESS;
}

int epx_comm_allgather(struct epx_comm *comm, int64_t value, int64_t *values)
{
    struct epx_agreement *agreement = &comm->agreement;
    MPI_Request request;

    EPX_TRY(check_alive(comm));
    agreement->value[0] = value;
    EPX_TRY_COLLECTIVE(comm, MPI_Iallgather(agreement->value, 1, MPI_INT64_T, agreement->gathered,
                                            1, MPI_INT64_T, comm->traffic, &request));
    EPX_TRY(epx_comm_await(comm, &request));
    if (values)
        memmove(values, agreement->gathered, (size_t)comm->size * sizeof(*values));
    return EPX_SUCCESS;
}

int epx_comm_allgather_bytes(struct epx_comm *comm, const void *own, int bytes, void *all)
{
    MPI_Request request;

    EPX_TRY(check_alive(comm));
    EPX_TRY_COLLECTIVE(
        comm, MPI_Iallgather(own, bytes, MPI_BYTE, all, bytes, MPI_BYTE, comm->traffic, &request));
    return epx_comm_await(comm, &request);
}

int epx_comm_bcast(struct epx_comm *comm, void *data, int bytes)
{
    char *message = comm->agreement.message;
    MPI_Request request;

    EPX_TRY(check_alive(comm));
    memcpy(message, data, (size_t)bytes);
    EPX_TRY_COLLECTIVE(comm, MPI_Ibcast(message, bytes, MPI_BYTE, 0, comm->traffic, &request));
    EPX_TRY(epx_comm_await(comm, &request));
    memcpy(data, message, (size_t)bytes);
    return EPX_SUCCESS;
}
