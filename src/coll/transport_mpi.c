/* SPDX-License-Identifier: BSD-3-Clause */
/* transport_mpi.c - nonblocking MPI collectives on host buffers; works wherever MPI does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "transport.h"

/*
 * Life and death, by messages on the control communicator. Every rank keeps one receive posted
 * and looks at it at every pass: an ASK is answered with its position, an END ends the
 * communicator here as well. A rank that never looks never answers.
 */
enum letter_kind { LETTER_ASK, LETTER_ANSWER, LETTER_END };
enum { LETTER_TAG = 1, MAX_COLLECTIVES = 4 };

struct letter {
    int32_t kind, sender;
    uint64_t position;
    char message[EPX_MAX_ERROR_STRING];
};

struct sent_letter {
    struct letter letter;
    MPI_Request request;
    struct sent_letter *next;
};

struct mpi {
    struct epx_comm *comm;
    MPI_Comm data;
    MPI_Request collectives[MAX_COLLECTIVES];
    int num_collectives;
    struct letter inbox;
    MPI_Request receive;
    struct sent_letter *sent;
    char *answered;      /* [R] since the last probe */
    uint64_t *positions; /* [R] */
    uint64_t position;
    struct mpi *next_kept;
};

static int mpi_usable(struct epx_comm *comm, char *why)
{
    (void)comm;
    (void)why;
    return 1;
}

static int post_receive(struct mpi *mpi)
{
    EPX_TRY_MPI(MPI_Irecv(&mpi->inbox, (int)sizeof(mpi->inbox), MPI_BYTE, MPI_ANY_SOURCE,
                          LETTER_TAG, mpi->comm->control, &mpi->receive));
    return EPX_SUCCESS;
}

/* Letters are short: MPI takes them at once, unless their reader is dead. */
static void forget_sent(struct mpi *mpi)
{
    struct sent_letter **link = &mpi->sent;

    while (*link) {
        struct sent_letter *letter = *link;
        int done = 0;

        MPI_Test(&letter->request, &done, MPI_STATUS_IGNORE);
        if (!done) {
            link = &letter->next;
            continue;
        }
        *link = letter->next;
        free(letter);
    }
}

static void send_letter(struct mpi *mpi, int rank, enum letter_kind kind, const char *message)
{
    struct sent_letter *sent = calloc(1, sizeof(*sent));

    if (!sent)
        return;
    sent->letter.kind = (int32_t)kind;
    sent->letter.sender = mpi->comm->rank;
    sent->letter.position = mpi->position;
    snprintf(sent->letter.message, sizeof(sent->letter.message), "%s", message);
    if (MPI_Isend(&sent->letter, (int)sizeof(sent->letter), MPI_BYTE, rank, LETTER_TAG,
                  mpi->comm->control, &sent->request) != MPI_SUCCESS) {
        free(sent);
        return;
    }
    sent->next = mpi->sent;
    mpi->sent = sent;
}

static void send_to_others(struct mpi *mpi, enum letter_kind kind, const char *message)
{
    for (int r = 0; r < mpi->comm->size; r++)
        if (r != mpi->comm->rank)
            send_letter(mpi, r, kind, message);
}

/* The receive stays posted, and so does its buffer. */
static void keep_forever(struct mpi *mpi)
{
    static struct mpi *kept;

    epx_lock();
    mpi->next_kept = kept;
    kept = mpi;
    epx_unlock();
}

static void mpi_free(void *state)
{
    struct mpi *mpi = state;

    if (!mpi)
        return;
    if (mpi->receive != MPI_REQUEST_NULL) {
        if (MPI_Cancel(&mpi->receive) != MPI_SUCCESS) {
            keep_forever(mpi);
            return;
        }
        MPI_Wait(&mpi->receive, MPI_STATUS_IGNORE);
    }
    forget_sent(mpi);
    if (mpi->data != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->data);
    free(mpi->answered);
    free(mpi->positions);
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
        mpi->receive = MPI_REQUEST_NULL;
        mpi->answered = calloc((size_t)comm->size, sizeof(*mpi->answered));
        mpi->positions = calloc((size_t)comm->size, sizeof(*mpi->positions));
    }
    if (!mpi || !mpi->answered || !mpi->positions)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for transport mpi");
    EPX_TRY(epx_comm_agree(comm, rc));
    EPX_TRY_COLLECTIVE(comm, MPI_Comm_idup(comm->traffic, &mpi->data, &request));
    EPX_TRY(epx_comm_await(comm, &request));
    return epx_comm_agree(comm, post_receive(mpi));
}

static int read_letter(struct mpi *mpi, char *message)
{
    struct letter *letter = &mpi->inbox;

    if (letter->kind == LETTER_END) {
        memcpy(message, letter->message, sizeof(letter->message));
        return 1;
    }
    if (letter->kind == LETTER_ASK) {
        send_letter(mpi, letter->sender, LETTER_ANSWER, "");
        return 0;
    }
    mpi->answered[letter->sender] = 1;
    mpi->positions[letter->sender] = letter->position;
    return 0;
}

static int mpi_beat(void *state, uint64_t position, char *message)
{
    struct mpi *mpi = state;
    int arrived = 1, ended = 0;

    mpi->position = position;
    if (mpi->sent)
        forget_sent(mpi);
    while (!ended && mpi->receive != MPI_REQUEST_NULL) {
        if (MPI_Test(&mpi->receive, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || !arrived)
            break;
        ended = read_letter(mpi, message);
        post_receive(mpi);
    }
    return ended;
}

static void mpi_probe(void *state)
{
    struct mpi *mpi = state;

    memset(mpi->answered, 0, (size_t)mpi->comm->size);
    send_to_others(mpi, LETTER_ASK, "");
}

static int mpi_answered(void *state, int rank, uint64_t *position)
{
    struct mpi *mpi = state;

    *position = mpi->positions[rank];
    return mpi->answered[rank];
}

static void mpi_announce(void *state, char *message)
{
    send_to_others(state, LETTER_END, message);
}

static int mpi_window_create(void *state, size_t bytes, struct epx_window **window)
{
    struct mpi *mpi = state;

    return epx_transport_private_window(mpi->comm, bytes, window);
}

static void mpi_window_free(void *state, struct epx_window *window)
{
    (void)state;
    epx_window_free(window);
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

    return started(mpi, MPI_Iallgather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, mpi->data,
                                       next_collective(mpi)), "MPI_Iallgather");
}

static int mpi_alltoall(void *state, const void *send, void *recv, int bytes)
{
    struct mpi *mpi = state;

    return started(mpi, MPI_Ialltoall(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, mpi->data,
                                      next_collective(mpi)), "MPI_Ialltoall");
}

static int mpi_alltoallv(void *state, const void *send, const int *sendcounts, const int *sdispls,
                         void *recv, const int *recvcounts, const int *rdispls)
{
    struct mpi *mpi = state;

    return started(mpi, MPI_Ialltoallv(send, sendcounts, sdispls, MPI_BYTE, recv, recvcounts,
                                       rdispls, MPI_BYTE, mpi->data, next_collective(mpi)),
                   "MPI_Ialltoallv");
}

static int mpi_done(void *state, int *done)
{
    struct mpi *mpi = state;
    MPI_Status statuses[MAX_COLLECTIVES]; /* MPI_STATUSES_IGNORE makes compilers warn */
    int error = MPI_Testall(mpi->num_collectives, mpi->collectives, done, statuses);

    if (error != MPI_SUCCESS || *done)
        mpi->num_collectives = 0;
    EPX_TRY_MPI(error);
    return EPX_SUCCESS;
}

static const struct epx_liveness_ops mpi_liveness = {
    .beat = mpi_beat,
    .probe = mpi_probe,
    .answered = mpi_answered,
    .announce = mpi_announce,
};

const struct epx_transport_ops epx_transport_mpi = {
    .memory = EPX_MEMORY_SYSTEM,
    .usable = mpi_usable,
    .create = mpi_create,
    .free = mpi_free,
    .liveness = &mpi_liveness,
    .window_create = mpi_window_create,
    .window_free = mpi_window_free,
    .allgather = mpi_allgather,
    .alltoall = mpi_alltoall,
    .alltoallv = mpi_alltoallv,
    .done = mpi_done,
};
