/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_agree.c - all ranks of a communicator find out together whether its arenas may be freed.
 *
 * A window can be freed by all ranks together alone, and tensors that lie in it die at other times
 * on other ranks. So every rank tells how many are left. If there are any, no rank frees anything.
 */
#include "glue.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PAUSE_NS = 50000, RANKS_NAMED = 8 };

/* Makes the communicator of MPI in which ranks tell, with the first arena; collective. Ranks that
 * MPI did not start tell by what they met by. */
int epx_python_agreement(struct epx_python_comm *comm)
{
    if (comm->allgather || comm->agreement != MPI_COMM_NULL)
        return EPX_SUCCESS;
    EPX_PYTHON_TRY(epx_python_group_comm(comm->group, EPX_PYTHON_FOR_AGREEMENT, comm->timeout_ms,
                                         &comm->agreement));
    MPI_Comm_set_errhandler(comm->agreement, MPI_ERRORS_RETURN);
    return EPX_SUCCESS;
}

/* Waits for at most the communicator's time-out. */
static int await(const struct epx_python_comm *comm, MPI_Request *request)
{
    const struct timespec pause = {0, PAUSE_NS};
    const int64_t start = epx_python_now_ns();
    int done = 0;

    while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        if (comm->timeout_ms && epx_python_now_ns() - start > comm->timeout_ms * 1000000)
            return epx_python_fail(EPX_ERR_TIMEOUT, "close: not all ranks came within %lld ms",
                                   (long long)comm->timeout_ms);
        nanosleep(&pause, NULL);
    }
    return done ? EPX_SUCCESS : epx_python_fail(EPX_ERR_MPI, "close: MPI_Iallgather failed");
}

/* The last of the numbers is this rank's own. */
static int gather(const struct epx_python_comm *comm, int64_t *numbers)
{
    MPI_Request request;

    if (comm->allgather)
        return comm->allgather(&numbers[comm->size], numbers, sizeof(*numbers), NULL) == 0
                   ? EPX_SUCCESS
                   : epx_python_fail(EPX_ERR_TIMEOUT, "close: not all ranks came within %lld ms",
                                     (long long)comm->timeout_ms);
    if (comm->agreement == MPI_COMM_NULL)
        return epx_python_fail(EPX_ERR_TIMEOUT, "close: not all ranks came to an earlier one");
    if (MPI_Iallgather(&numbers[comm->size], 1, MPI_INT64_T, numbers, 1, MPI_INT64_T,
                       comm->agreement, &request) != MPI_SUCCESS)
        return epx_python_fail(EPX_ERR_MPI, "close: MPI_Iallgather failed");
    return await(comm, &request);
}

static int judge(const struct epx_python_comm *comm, const int64_t *numbers)
{
    char ranks[256] = "";
    int num = 0, length = 0;

    for (int r = 0; r < comm->size; r++)
        if (numbers[r] && num++ < RANKS_NAMED)
            length += snprintf(ranks + length, sizeof(ranks) - (size_t)length, "%s%lld on rank %d",
                               num == 1 ? "" : ", ", (long long)numbers[r], r);
    if (num > RANKS_NAMED)
        snprintf(ranks + length, sizeof(ranks) - (size_t)length, " and more on %d other ranks",
                 num - RANKS_NAMED);
    return num ? epx_python_fail(
                     EPX_ERR_PENDING,
                     "close: reserved memory is in use, parts: %s. Delete the tensors that lie "
                     "there, and the outputs whose autograd graphs hold them; on GPUs the graphs "
                     "and pools too. Nothing is closed",
                     ranks)
               : EPX_SUCCESS;
}

/* Alone, this rank judges what it knows itself. After a time-out MPI may still write the numbers:
 * they and the communicator of MPI are left. */
static int judge_parts(struct epx_python_comm *comm, int64_t num_parts, int alone)
{
    int64_t *numbers = calloc((size_t)comm->size + 1, sizeof(*numbers));
    int rank = 0, rc = EPX_SUCCESS;

    if (!numbers)
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for %d ranks", comm->size);
    EPX_Comm_rank(comm->comm, &rank);
    numbers[rank] = numbers[comm->size] = num_parts;
    if (!alone)
        rc = gather(comm, numbers);
    if (rc != EPX_SUCCESS) {
        comm->agreement = MPI_COMM_NULL;
        return rc;
    }
    rc = judge(comm, numbers);
    free(numbers);
    return rc;
}

/* Meets the other ranks in EPX, which completes what is in flight on device memory, and knows if
 * the communicator is finished: then they may be gone, and *alone is set. */
static int meet(struct epx_python_comm *comm, int *alone)
{
    void *nothing;
    int rc = epx_python_check(comm, EPX_Alloc_mem(0, comm->comm, &nothing));

    *alone = rc == EPX_ERR_TIMEOUT || rc == EPX_ERR_MPI;
    if (*alone)
        comm->agreement = MPI_COMM_NULL;
    if (rc != EPX_SUCCESS)
        return *alone ? EPX_SUCCESS : rc;
    return epx_python_check(comm, EPX_Free_mem(nothing, comm->comm));
}

/* Frees the arenas of the communicator if no part of them is in use on any rank; else refuses on
 * all ranks. Collective, but after a time-out. */
int epx_python_release(int number)
{
    struct epx_python_comm *comm;
    int64_t num_parts;
    int alone, rc;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    num_parts = epx_python_seal(number, 1);
    if (num_parts < 0)
        return EPX_SUCCESS;
    rc = meet(comm, &alone);
    if (rc == EPX_SUCCESS)
        rc = judge_parts(comm, num_parts, alone);
    if (rc == EPX_SUCCESS)
        return epx_python_free_arenas(number);
    epx_python_seal(number, 0);
    return rc;
}
