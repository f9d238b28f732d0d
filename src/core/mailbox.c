/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mailbox.c - letters between the ranks of a communicator. Each mailbox keeps one receive posted.
 * Letters are so short that MPI takes them at once, unless their receiver is dead, or has yet to
 * confirm one.
 */
#include "core/mailbox.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct sent {
    MPI_Request request;
    struct sent *next;
    char letter[]; /* [most_bytes] */
};

struct epx_mailbox {
    struct epx_comm *comm;
    int tag;
    size_t most_bytes;
    int num_spare, most_spare;
    MPI_Request receive;
    struct sent *sent, *spare;
    struct epx_mailbox *next_kept;
    char inbox[]; /* [most_bytes] */
};

static struct sent *new_letter(const struct epx_mailbox *mailbox)
{
    return calloc(1, sizeof(struct sent) + mailbox->most_bytes);
}

static void lay_aside(struct epx_mailbox *mailbox, struct sent *sent)
{
    if (mailbox->num_spare == mailbox->most_spare) {
        free(sent);
        return;
    }
    sent->next = mailbox->spare;
    mailbox->spare = sent;
    mailbox->num_spare++;
}

static struct sent *take_spare(struct epx_mailbox *mailbox)
{
    struct sent *sent = mailbox->spare;

    if (!sent)
        return new_letter(mailbox);
    mailbox->spare = sent->next;
    mailbox->num_spare--;
    return sent;
}

static int forget_sent(struct epx_mailbox *mailbox)
{
    struct sent **link = &mailbox->sent;
    int rc = EPX_SUCCESS;

    while (*link) {
        struct sent *sent = *link;
        int done = 0, error = MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE);

        if (error != MPI_SUCCESS)
            rc = epx_fail_mpi(error, "MPI_Test");
        if (!done) {
            link = &sent->next;
            continue;
        }
        *link = sent->next;
        lay_aside(mailbox, sent);
    }
    return rc;
}

static int post_receive(struct epx_mailbox *mailbox)
{
    EPX_TRY_MPI(MPI_Irecv(mailbox->inbox, (int)mailbox->most_bytes, MPI_BYTE, MPI_ANY_SOURCE,
                          mailbox->tag, mailbox->comm->traffic, &mailbox->receive));
    return EPX_SUCCESS;
}

static int init(struct epx_mailbox *mailbox, int num_spare)
{
    mailbox->receive = MPI_REQUEST_NULL;
    mailbox->most_spare = num_spare;
    for (int i = 0; i < num_spare; i++) {
        struct sent *sent = new_letter(mailbox);

        EPX_FAIL_IF(!sent, EPX_ERR_NO_MEM, "no memory for %d letters", num_spare);
        lay_aside(mailbox, sent);
    }
    return post_receive(mailbox);
}

int epx_mailbox_open(struct epx_comm *comm, int tag, size_t most_bytes, int num_spare,
                     struct epx_mailbox **result)
{
    struct epx_mailbox *mailbox = calloc(1, sizeof(*mailbox) + most_bytes);
    int rc;

    EPX_FAIL_IF(!mailbox, EPX_ERR_NO_MEM, "no memory for letters");
    mailbox->comm = comm;
    mailbox->tag = tag;
    mailbox->most_bytes = most_bytes;
    rc = init(mailbox, num_spare);
    if (rc != EPX_SUCCESS) {
        epx_mailbox_close(mailbox);
        return rc;
    }
    *result = mailbox;
    return EPX_SUCCESS;
}

/* For what could not be cancelled: MPI still uses it. */
static void keep_forever(struct epx_mailbox *mailbox)
{
    static struct epx_mailbox *kept;

    epx_lock();
    mailbox->next_kept = kept;
    kept = mailbox;
    epx_unlock();
}

void epx_mailbox_close(struct epx_mailbox *mailbox)
{
    if (!mailbox)
        return;
    if (mailbox->receive != MPI_REQUEST_NULL) {
        if (MPI_Cancel(&mailbox->receive) != MPI_SUCCESS) {
            keep_forever(mailbox);
            return;
        }
        MPI_Wait(&mailbox->receive, MPI_STATUS_IGNORE);
    }
    forget_sent(mailbox);
    while (mailbox->spare) {
        struct sent *spare = mailbox->spare;

        mailbox->spare = spare->next;
        free(spare);
    }
    if (mailbox->sent)
        keep_forever(mailbox);
    else
        free(mailbox);
}

static int send_letter(struct epx_mailbox *mailbox, int rank, const void *letter, size_t bytes,
                       int confirmed)
{
    struct sent *sent = take_spare(mailbox);
    int error;

    EPX_FAIL_IF(!sent, EPX_ERR_NO_MEM, "no memory for a letter to rank %d", rank);
    memcpy(sent->letter, letter, bytes);
    if (confirmed)
        error = MPI_Issend(sent->letter, (int)bytes, MPI_BYTE, rank, mailbox->tag,
                           mailbox->comm->traffic, &sent->request);
    else
        error = MPI_Isend(sent->letter, (int)bytes, MPI_BYTE, rank, mailbox->tag,
                          mailbox->comm->traffic, &sent->request);
    if (error != MPI_SUCCESS) {
        lay_aside(mailbox, sent);
        return epx_fail_mpi(error, confirmed ? "MPI_Issend" : "MPI_Isend");
    }
    sent->next = mailbox->sent;
    mailbox->sent = sent;
    return EPX_SUCCESS;
}

int epx_mailbox_send(struct epx_mailbox *mailbox, int rank, const void *letter, size_t bytes)
{
    return send_letter(mailbox, rank, letter, bytes, 0);
}

int epx_mailbox_send_confirmed(struct epx_mailbox *mailbox, int rank, const void *letter,
                               size_t bytes)
{
    return send_letter(mailbox, rank, letter, bytes, 1);
}

int epx_mailbox_take(struct epx_mailbox *mailbox, const void **letter)
{
    int arrived = 0;

    *letter = NULL;
    if (mailbox->receive == MPI_REQUEST_NULL)
        EPX_TRY(post_receive(mailbox));
    EPX_TRY_MPI(MPI_Test(&mailbox->receive, &arrived, MPI_STATUS_IGNORE));
    *letter = arrived ? mailbox->inbox : NULL;
    return arrived || !mailbox->sent ? EPX_SUCCESS : forget_sent(mailbox);
}

void epx_mailbox_flush(struct epx_mailbox *mailbox, int64_t bound_ms)
{
    int64_t end = epx_deadline_in(bound_ms);

    forget_sent(mailbox);
    while (mailbox->sent && !epx_deadline_is_over(end)) {
        sched_yield();
        forget_sent(mailbox);
    }
}
