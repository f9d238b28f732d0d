/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mailbox.h - short messages, called letters, between the ranks of a communicator, by MPI on the
 * traffic communicator. They go and come only when a rank looks. Mailboxes with different tags are
 * independent of each other. All calls are local, and made with the lock held or by one thread.
 */
#ifndef EPX_CORE_MAILBOX_H
#define EPX_CORE_MAILBOX_H

#include "core/comm.h"

struct epx_mailbox;

enum { EPX_TAG_LIVENESS = 1, EPX_TAG_BIRTH };

/* Letters are at most most_bytes long. num_spare of them can be under way without more memory. */
int epx_mailbox_open(struct epx_comm *comm, int tag, size_t most_bytes, int num_spare,
                     struct epx_mailbox **mailbox);
/* What MPI still reads or writes stays for good. Takes NULL. */
void epx_mailbox_close(struct epx_mailbox *mailbox);

int epx_mailbox_send(struct epx_mailbox *mailbox, int rank, const void *letter, size_t bytes);
/*
 * Sends a letter that is under way until the receiver has taken it. It makes the way to the
 * receiver for long messages too: where MPI uses UCX, MPI would else ask the receiver for its
 * endpoint before the first of them, and hold back all that follows, letters too, until the
 * receiver answers. Until then this letter and those behind it are held back.
 */
int epx_mailbox_send_confirmed(struct epx_mailbox *mailbox, int rank, const void *letter,
                               size_t bytes);
/* Gives the next letter that came, valid until the next call; NULL = none. */
int epx_mailbox_take(struct epx_mailbox *mailbox, const void **letter);
/* Gives letters on their way some time to leave. */
void epx_mailbox_flush(struct epx_mailbox *mailbox, int64_t bound_ms);

#endif
