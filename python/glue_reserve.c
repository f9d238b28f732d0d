/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_reserve.c - all ranks of a communicator together make its arenas, and free them.
 *
 * A window can be freed by all ranks together alone, and tensors that lie in it die at other times
 * on other ranks. So every rank tells how many are left. If there are any, no rank frees anything.
 */
#include "glue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_NAMED = 8 };

/* Makes what ranks that MPI started tell by, with the first arena; collective. Others tell by what
 * they met by, or by EPX. */
static int open_agreement(struct epx_python_comm *comm)
{
    return comm->ranks ? epx_python_mpi()->open_agreement(comm->ranks, comm->timeout_ms)
                       : EPX_SUCCESS;
}

/* Makes a window, and after it what the ranks need to free it, since all of them are there. */
static int allocate(struct epx_python_comm *comm, int64_t bytes, char **window)
{
    int rc = epx_python_check(comm, EPX_Alloc_mem((MPI_Aint)bytes, comm->comm, window));

    if (rc != EPX_SUCCESS)
        return rc;
    rc = open_agreement(comm);
    if (rc != EPX_SUCCESS)
        EPX_Free_mem(*window, comm->comm);
    return rc;
}

/* Adds an arena of so many bytes, rounded up; collective. A rank may want 0 bytes. */
int epx_python_reserve(int number, int64_t bytes)
{
    struct epx_python_comm *comm;
    struct epx_python_arena *arena;
    char *window;
    int rc;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    if (bytes < 0 || bytes > INT64_MAX - EPX_PYTHON_ALIGNMENT)
        return epx_python_fail(bytes < 0 ? EPX_ERR_COUNT : EPX_ERR_NO_MEM,
                               "reserve: %lld bytes, want 0 to what the machine has",
                               (long long)bytes);
    arena = epx_python_arena_new(number, &bytes);
    if (!arena)
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for the list of an arena");
    rc = allocate(comm, bytes, &window);
    if (rc == EPX_SUCCESS)
        epx_python_arena_open(arena, window, comm->on_device ? epx_python_device_of(window) : -1);
    else
        epx_python_arena_free(arena);
    return rc;
}

static void leave_agreement(struct epx_python_comm *comm)
{
    if (comm->ranks)
        epx_python_mpi()->leave_agreement(comm->ranks);
}

/* numbers[R], this rank's own, goes to all ranks, and theirs come to numbers[0] to numbers[R - 1].
 * Then come R counts, each 1, and three times R zeros: displacements and what arrives. */
static int send_number(const struct epx_python_comm *comm, int64_t *numbers)
{
    const int size = comm->size;
    int64_t *counts = numbers + size + 1;
    EPX_Request request;
    int rc;

    rc = EPX_Alltoallv(&numbers[size], counts, counts + size, numbers, counts + 2 * size,
                       counts + 3 * size, size, 1, EPX_FLOAT64, comm->comm, EPX_STREAM_NULL,
                       &request);
    if (rc == EPX_SUCCESS)
        rc = EPX_Wait(&request, MPI_STATUS_IGNORE);
    return epx_python_check(comm, rc);
}

static int send_number_on_device(const struct epx_python_comm *comm, int64_t *numbers, size_t bytes)
{
    void *there;
    int rc;

    EPX_PYTHON_TRY(epx_python_device_push(comm->context));
    rc = epx_python_device_place(&there, numbers, bytes);
    if (rc == EPX_SUCCESS) {
        rc = send_number(comm, there);
        if (rc == EPX_SUCCESS)
            rc = epx_python_device_fetch(numbers, there, bytes);
        epx_python_device_free(there);
    }
    epx_python_device_pop();
    return rc;
}

/* Ranks that shrank have nothing but EPX: each sends its number to all. */
static int gather_by_rows(const struct epx_python_comm *comm, int64_t *numbers)
{
    const size_t size = (size_t)comm->size, bytes = (5 * size + 1) * sizeof(*numbers);
    int64_t *words = calloc(1, bytes);
    int rc;

    if (!words)
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for %d ranks", comm->size);
    words[size] = numbers[size];
    for (size_t r = 0; r < size; r++)
        words[size + 1 + r] = 1;
    rc = comm->on_device ? send_number_on_device(comm, words, bytes) : send_number(comm, words);
    memcpy(numbers, words, size * sizeof(*numbers));
    free(words);
    return rc;
}

/* The last of the numbers is this rank's own. */
static int gather(const struct epx_python_comm *comm, int64_t *numbers)
{
    if (comm->ranks)
        return epx_python_mpi()->agree(comm->ranks, numbers, comm->timeout_ms);
    if (!comm->allgather)
        return gather_by_rows(comm, numbers);
    if (comm->allgather(&numbers[comm->size], numbers, sizeof(*numbers), NULL) == 0)
        return EPX_SUCCESS;
    return epx_python_fail(EPX_ERR_TIMEOUT, "close: not all ranks came within %lld ms",
                           (long long)comm->timeout_ms);
}

/* The largest of the values of all ranks; collective. */
int epx_python_comm_largest(int number, int64_t value, int64_t *largest)
{
    struct epx_python_comm *comm;
    int64_t *numbers;
    int rc, rank = 0;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    EPX_PYTHON_TRY(open_agreement(comm));
    numbers = calloc((size_t)comm->size + 1, sizeof(*numbers));
    if (!numbers)
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for %d ranks", comm->size);
    EPX_Comm_rank(comm->comm, &rank);
    numbers[rank] = numbers[comm->size] = value;
    rc = gather(comm, numbers);
    if (rc != EPX_SUCCESS) { /* MPI may still write the numbers: they are left */
        leave_agreement(comm);
        return rc;
    }
    *largest = value;
    for (int r = 0; r < comm->size; r++)
        *largest = numbers[r] > *largest ? numbers[r] : *largest;
    free(numbers);
    return EPX_SUCCESS;
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
        leave_agreement(comm);
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
        leave_agreement(comm);
    if (rc != EPX_SUCCESS)
        return *alone ? EPX_SUCCESS : rc;
    return epx_python_check(comm, EPX_Free_mem(nothing, comm->comm));
}

/* Frees the windows of the communicator, of which no part is in use. Collective, but after a
 * time-out; one that is met here frees them too. */
static int free_arenas(const struct epx_python_comm *comm, int number)
{
    struct epx_python_arena *arena;

    while ((arena = epx_python_arena_first(number))) {
        int rc = epx_python_check(comm, EPX_Free_mem(epx_python_arena_window(arena), comm->comm));

        if (rc != EPX_SUCCESS && rc != EPX_ERR_TIMEOUT && rc != EPX_ERR_MPI)
            return rc;
        epx_python_arena_free(arena);
    }
    return EPX_SUCCESS;
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
        return free_arenas(comm, number);
    epx_python_seal(number, 0);
    return rc;
}
