/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control_mpi.c - a control plane by MPI. Each mailbox keeps one receive posted. Letters are so
 * short that MPI takes them at once, unless their receiver is dead, or has yet to confirm one.
 */
#include "control/control_mpi.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct sent {
    MPI_Request request;
    struct sent *next;
    char letter[]; /* [most_bytes] */
};

struct mailbox {
    struct epx_mailbox base;
    MPI_Comm traffic;
    int tag;
    size_t most_bytes;
    int num_spare, most_spare;
    MPI_Request receive;
    struct sent *sent, *spare;
    uintptr_t next_kept; /* keeps what is kept in sight of leak checkers */
    char inbox[];        /* [most_bytes] */
};

int epx_fail_mpi(int mpi_error, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;

    MPI_Error_string(mpi_error, text, &length);
    return epx_fail(EPX_ERR_MPI, "%s: %s", call, text);
}

static struct mailbox *mailbox_of(struct epx_mailbox *base)
{
    return (struct mailbox *)(void *)base;
}

static struct sent *new_letter(const struct mailbox *mailbox)
{
    return calloc(1, sizeof(struct sent) + mailbox->most_bytes);
}

static void lay_aside(struct mailbox *mailbox, struct sent *sent)
{
    if (mailbox->num_spare == mailbox->most_spare) {
        free(sent);
        return;
    }
    sent->next = mailbox->spare;
    mailbox->spare = sent;
    mailbox->num_spare++;
}

static struct sent *take_spare(struct mailbox *mailbox)
{
    struct sent *sent = mailbox->spare;

    if (!sent)
        return new_letter(mailbox);
    mailbox->spare = sent->next;
    mailbox->num_spare--;
    return sent;
}

static int forget_sent(struct mailbox *mailbox)
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

static int post_receive(struct mailbox *mailbox)
{
    EPX_TRY_MPI(MPI_Irecv(mailbox->inbox, (int)mailbox->most_bytes, MPI_BYTE, MPI_ANY_SOURCE,
                          mailbox->tag, mailbox->traffic, &mailbox->receive));
    return EPX_SUCCESS;
}

static int init(struct mailbox *mailbox, int num_spare)
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

static void close_mailbox(struct epx_mailbox *base);

static int open_mailbox(void *state, enum epx_tag tag, size_t most_bytes, int num_spare,
                        struct epx_mailbox **result)
{
    const struct epx_traffic *traffic = state;
    struct mailbox *mailbox = calloc(1, sizeof(*mailbox) + most_bytes);
    int rc;

    EPX_FAIL_IF(!mailbox, EPX_ERR_NO_MEM, "no memory for letters");
    mailbox->traffic = traffic->comm;
    mailbox->tag = (int)tag;
    mailbox->most_bytes = most_bytes;
    rc = init(mailbox, num_spare);
    if (rc != EPX_SUCCESS) {
        close_mailbox(&mailbox->base);
        return rc;
    }
    *result = &mailbox->base;
    return EPX_SUCCESS;
}

/* For what could not be cancelled: MPI still uses it. */
static void keep_forever(struct mailbox *mailbox)
{
    static _Atomic(uintptr_t) kept;

    mailbox->next_kept = atomic_exchange(&kept, (uintptr_t)mailbox);
}

static void close_mailbox(struct epx_mailbox *base)
{
    struct mailbox *mailbox = mailbox_of(base);

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

static int send_letter(struct epx_mailbox *base, int rank, const void *letter, size_t bytes,
                       int confirmed)
{
    struct mailbox *mailbox = mailbox_of(base);
    struct sent *sent = take_spare(mailbox);
    int error;

    EPX_FAIL_IF(!sent, EPX_ERR_NO_MEM, "no memory for a letter to rank %d", rank);
    memcpy(sent->letter, letter, bytes);
    if (confirmed)
        error = MPI_Issend(sent->letter, (int)bytes, MPI_BYTE, rank, mailbox->tag, mailbox->traffic,
                           &sent->request);
    else
        error = MPI_Isend(sent->letter, (int)bytes, MPI_BYTE, rank, mailbox->tag, mailbox->traffic,
                          &sent->request);
    if (error != MPI_SUCCESS) {
        lay_aside(mailbox, sent);
        return epx_fail_mpi(error, confirmed ? "MPI_Issend" : "MPI_Isend");
    }
    sent->next = mailbox->sent;
    mailbox->sent = sent;
    return EPX_SUCCESS;
}

static int take_letter(struct epx_mailbox *base, const void **letter)
{
    struct mailbox *mailbox = mailbox_of(base);
    int arrived = 0;

    *letter = NULL;
    if (mailbox->receive == MPI_REQUEST_NULL)
        EPX_TRY(post_receive(mailbox));
    EPX_TRY_MPI(MPI_Test(&mailbox->receive, &arrived, MPI_STATUS_IGNORE));
    *letter = arrived ? mailbox->inbox : NULL;
    return arrived || !mailbox->sent ? EPX_SUCCESS : forget_sent(mailbox);
}

static void flush(struct epx_mailbox *base, int64_t bound_ms)
{
    struct mailbox *mailbox = mailbox_of(base);
    int64_t end = epx_deadline_in(bound_ms);

    forget_sent(mailbox);
    while (mailbox->sent && !epx_deadline_is_over(end)) {
        sched_yield();
        forget_sent(mailbox);
    }
}

static int allreduce(void *state, int64_t *values, int n, enum epx_fold fold)
{
    struct epx_traffic *traffic = state;

    EPX_TRY_MPI(MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_INT64_T,
                               fold == EPX_FOLD_MIN ? MPI_MIN : MPI_MAX, traffic->comm,
                               &traffic->collective));
    return EPX_SUCCESS;
}

static int allgather(void *state, const void *own, int bytes, void *all)
{
    struct epx_traffic *traffic = state;

    EPX_TRY_MPI(MPI_Iallgather(own, bytes, MPI_BYTE, all, bytes, MPI_BYTE, traffic->comm,
                               &traffic->collective));
    return EPX_SUCCESS;
}

static int bcast(void *state, void *data, int bytes, int root)
{
    struct epx_traffic *traffic = state;

    EPX_TRY_MPI(MPI_Ibcast(data, bytes, MPI_BYTE, root, traffic->comm, &traffic->collective));
    return EPX_SUCCESS;
}

static int done(void *state, int *done)
{
    struct epx_traffic *traffic = state;

    EPX_TRY_MPI(MPI_Test(&traffic->collective, done, MPI_STATUS_IGNORE));
    return EPX_SUCCESS;
}

const struct epx_control_ops epx_control_mpi = {
    .name = "mpi",
    .allreduce = allreduce,
    .allgather = allgather,
    .bcast = bcast,
    .done = done,
    .open = open_mailbox,
    .close = close_mailbox,
    .send = send_letter,
    .take = take_letter,
    .flush = flush,
};
