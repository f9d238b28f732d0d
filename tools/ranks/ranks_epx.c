/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ranks_epx.c - ranks that have no MPI. The address that they were given makes the first contact of
 * each communicator; what they tell each other goes by alltoallv on one of their own.
 */
#include <stdio.h>
#include <stdlib.h>

#include "ranks/by_address.h"
#include "ranks/ranks.h"
#include "ranks/ranks_maker.h"

static struct by_address *contact;
static EPX_Comm meeting;
static int64_t *counts, *displs, *came, *places; /* [size] */

static int create_comm(const char *const hints[], EPX_Comm *comm)
{
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;

    bootstrap.rank = by_address_rank(contact);
    bootstrap.num_ranks = by_address_size(contact);
    bootstrap.allgather = by_address_allgather;
    bootstrap.arg = contact;
    return EPX_Comm_create_from(&bootstrap, hints, comm);
}

static int64_t *new_numbers(int size)
{
    int64_t *numbers = calloc((size_t)size, sizeof(*numbers));

    if (!numbers)
        fprintf(stderr, "no memory for numbers of %d ranks\n", size);
    return numbers;
}

/* The environment's hints are for what is measured. */
static int start(const char *program, int *argc, char ***argv, int *rank, int *size)
{
    static const char *const hints[] = {"epx_memory=system", "epx_transport=auto",
                                        "epx_progress=calls", NULL};

    (void)argc;
    (void)argv;
    contact = by_address_open(program);
    if (!contact)
        return -1;
    *rank = by_address_rank(contact);
    *size = by_address_size(contact);
    counts = new_numbers(*size);
    displs = new_numbers(*size);
    came = new_numbers(*size);
    places = new_numbers(*size);
    if (!counts || !displs || !came || !places)
        return -1;
    return create_comm(hints, &meeting) == EPX_SUCCESS ? 0 : -1;
}

static void finish(void)
{
    EPX_Comm_free(&meeting);
    by_address_close(contact);
    free(counts);
    free(displs);
    free(came);
    free(places);
}

/* The others find this rank's sockets closed. */
static void end_job(void)
{
    fflush(NULL);
    _Exit(EXIT_FAILURE);
}

/* Gives every rank `num` rows of so many bytes: the same one, or each `distance` rows further. */
static void exchange(const void *to, void *from, size_t bytes, int num, int distance)
{
    const int size = by_address_size(contact);
    EPX_Request request;

    for (int r = 0; r < size; r++) {
        counts[r] = num;
        displs[r] = (int64_t)r * distance;
    }
    ranks_must(EPX_Alltoallv(to, counts, displs, from, came, places, (int64_t)size * num,
                             (int)bytes, EPX_BYTE, meeting, EPX_STREAM_NULL, &request));
    ranks_must(EPX_Wait(&request, MPI_STATUS_IGNORE));
}

/* No rank knows that nothing comes before all have said so. */
static void barrier(void)
{
    char nothing[1] = {0};

    exchange(nothing, nothing, 1, 0, 0);
}

static void allgather(const void *own, void *all, size_t bytes)
{
    exchange(own, all, bytes, 1, 0);
}

static void alltoall(const void *to, void *from, size_t bytes)
{
    exchange(to, from, bytes, 1, 1);
}

const struct ranks_maker ranks_maker_epx = {
    .start = start,
    .finish = finish,
    .end_job = end_job,
    .barrier = barrier,
    .allgather = allgather,
    .alltoall = alltoall,
    .create_comm = create_comm,
};
