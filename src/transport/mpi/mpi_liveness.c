/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_liveness.c - life and death, by messages on the control communicator. Every rank keeps one
 * receive posted and looks at it at every pass: an ASK is answered with its position, an END ends
 * the communicator here as well. A rank that never looks never answers.
 */
#include "transport/mpi/mpi_liveness.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/agree.h"
#include "core/progress.h"

enum letter_kind { LETTER_ASK, LETTER_ANSWER, LETTER_END };
enum { LETTER_TAG = 1, ANSWERS_MS = 200 };

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

struct epx_letters {
    struct epx_comm *comm;
    struct letter inbox;
    MPI_Request receive;
    struct sent_letter *sent;
    char *answered;      /* [R] since the last probe */
    uint64_t *positions; /* [R] */
    uint64_t position;
    struct epx_letters *next_kept;
};

static int post_receive(struct epx_letters *letters)
{
    EPX_TRY_MPI(MPI_Irecv(&letters->inbox, (int)sizeof(letters->inbox), MPI_BYTE, MPI_ANY_SOURCE,
                          LETTER_TAG, letters->comm->control, &letters->receive));
    return EPX_SUCCESS;
}

/* Letters are short: MPI takes them at once, unless their reader is dead. */
static void forget_sent(struct epx_letters *letters)
{
    struct sent_letter **link = &letters->sent;

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

static void send_letter(struct epx_letters *letters, int rank, enum letter_kind kind,
                        const char *message)
{
    struct sent_letter *sent = calloc(1, sizeof(*sent));

    if (!sent)
        return;
    sent->letter.kind = (int32_t)kind;
    sent->letter.sender = letters->comm->rank;
    sent->letter.position = letters->position;
    snprintf(sent->letter.message, sizeof(sent->letter.message), "%s", message);
    if (MPI_Isend(&sent->letter, (int)sizeof(sent->letter), MPI_BYTE, rank, LETTER_TAG,
                  letters->comm->control, &sent->request) != MPI_SUCCESS) {
        free(sent);
        return;
    }
    sent->next = letters->sent;
    letters->sent = sent;
}

static void send_to_others(struct epx_letters *letters, enum letter_kind kind,
                           const char *message)
{
    for (int r = 0; r < letters->comm->size; r++)
        if (r != letters->comm->rank)
            send_letter(letters, r, kind, message);
}

/* The receive stays posted, and so does its buffer. */
static void keep_forever(struct epx_letters *letters)
{
    static struct epx_letters *kept;

    epx_lock();
    letters->next_kept = kept;
    kept = letters;
    epx_unlock();
}

void epx_letters_free(struct epx_letters *letters)
{
    if (!letters)
        return;
    if (letters->receive != MPI_REQUEST_NULL) {
        if (MPI_Cancel(&letters->receive) != MPI_SUCCESS) {
            keep_forever(letters);
            return;
        }
        MPI_Wait(&letters->receive, MPI_STATUS_IGNORE);
    }
    forget_sent(letters);
    free(letters->answered);
    free(letters->positions);
    free(letters);
}

static int init(struct epx_letters *letters)
{
    size_t ranks = (size_t)letters->comm->size;

    letters->receive = MPI_REQUEST_NULL;
    letters->answered = calloc(ranks, sizeof(*letters->answered));
    letters->positions = calloc(ranks, sizeof(*letters->positions));
    EPX_FAIL_IF(!letters->answered || !letters->positions, EPX_ERR_NO_MEM,
                "no memory for letters of %zu ranks", ranks);
    return post_receive(letters);
}

int epx_letters_create(struct epx_comm *comm, struct epx_letters **result)
{
    struct epx_letters *letters = calloc(1, sizeof(*letters));
    int rc;

    EPX_FAIL_IF(!letters, EPX_ERR_NO_MEM, "no memory for letters");
    letters->comm = comm;
    rc = init(letters);
    if (rc != EPX_SUCCESS) {
        epx_letters_free(letters);
        return rc;
    }
    *result = letters;
    return EPX_SUCCESS;
}

static int read_letter(struct epx_letters *letters, char *message)
{
    struct letter *letter = &letters->inbox;

    if (letter->kind == LETTER_END) {
        memcpy(message, letter->message, sizeof(letter->message));
        return 1;
    }
    if (letter->kind == LETTER_ASK) {
        send_letter(letters, letter->sender, LETTER_ANSWER, "");
        return 0;
    }
    letters->answered[letter->sender] = 1;
    letters->positions[letter->sender] = letter->position;
    return 0;
}

int epx_letters_beat(struct epx_letters *letters, uint64_t position, char *message)
{
    int arrived = 1, ended = 0;

    letters->position = position;
    if (letters->sent)
        forget_sent(letters);
    while (!ended && letters->receive != MPI_REQUEST_NULL) {
        if (MPI_Test(&letters->receive, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || !arrived)
            break;
        ended = read_letter(letters, message);
        post_receive(letters);
    }
    return ended;
}

void epx_letters_probe(struct epx_letters *letters)
{
    memset(letters->answered, 0, (size_t)letters->comm->size);
    send_to_others(letters, LETTER_ASK, "");
}

int epx_letters_answered(const struct epx_letters *letters, int rank, uint64_t *position)
{
    *position = letters->positions[rank];
    return letters->answered[rank];
}

void epx_letters_announce(struct epx_letters *letters, const char *message)
{
    send_to_others(letters, LETTER_END, message);
}

/* The first suspect from here on that did not answer; this rank if all did. */
static int find_silent(const struct epx_letters *letters, int first, const char *suspects)
{
    int size = letters->comm->size, self = letters->comm->rank;

    for (int i = 0; i < size; i++) {
        int rank = (first + i) % size;

        if (rank != self && suspects[rank] && !letters->answered[rank])
            return rank;
    }
    return self;
}

int epx_letters_blame(struct epx_letters *letters, int first, const char *suspects, char *message)
{
    int64_t end = epx_now_ns() + ANSWERS_MS * 1000000LL;
    int self = letters->comm->rank, silent;

    epx_letters_probe(letters);
    do {
        if (epx_letters_beat(letters, letters->position, message))
            return -1;
        silent = find_silent(letters, first, suspects);
        sched_yield();
    } while (silent != self && epx_now_ns() < end);
    return silent == self ? first : silent;
}
