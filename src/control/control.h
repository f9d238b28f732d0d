/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control.h - the control plane of a communicator: what its ranks tell each other beside the rows
 * of operations. That are collectives, by which they agree, and short messages, called letters,
 * which go and come only when a rank looks. MPI makes one (control_mpi.c), sockets make another
 * (control_sockets.c).
 */
#ifndef EPX_CONTROL_CONTROL_H
#define EPX_CONTROL_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum epx_fold { EPX_FOLD_MIN, EPX_FOLD_MAX };

/* Mailboxes with different tags are independent of each other. */
enum epx_tag { EPX_TAG_LIVENESS = 1, EPX_TAG_BIRTH, EPX_TAG_SURVIVORS, EPX_NUM_TAGS };

/* The first member of what a maker keeps of a mailbox. */
struct epx_mailbox {
    const struct epx_control_ops *ops;
};

/*
 * All operations are local. Those with letters, pass and lost are called with the lock held or by
 * one thread; of collectives one is under way at a time, and all ranks start the same in the same
 * order. What a collective reads and writes stays until it is done; where it is given up MPI may
 * still read and write it at any later time.
 */
struct epx_control_ops {
    const char *name;
    /* Each value becomes the least, or the largest, of all ranks. */
    int (*allreduce)(void *state, int64_t *values, int n, enum epx_fold fold);
    /* Gathers in all[size][bytes]. */
    int (*allgather)(void *state, const void *own, int bytes, void *all);
    int (*bcast)(void *state, void *data, int bytes, int root);
    /* Sets *done when the collective under way has ended. */
    int (*done)(void *state, int *done);

    /* Letters are at most most_bytes long. num_spare of them can be under way without more
     * memory. */
    int (*open)(void *state, enum epx_tag tag, size_t most_bytes, int num_spare,
                struct epx_mailbox **mailbox);
    /* What MPI still reads or writes stays for good. */
    void (*close)(struct epx_mailbox *mailbox);
    /* A letter that is to be confirmed is under way until the receiver has taken it; see
     * epx_mailbox_send_confirmed. */
    int (*send)(struct epx_mailbox *mailbox, int rank, const void *letter, size_t bytes,
                int confirmed);
    int (*take)(struct epx_mailbox *mailbox, const void **letter);
    void (*flush)(struct epx_mailbox *mailbox, int64_t bound_ms);

    /* The rest may be NULL. */
    /* Moves on what is under way, at once or when it is time to look again. */
    void (*pass)(void *state, int at_once);
    /* A rank whose process has ended, or that has left while a collective waits for it, and what is
     * to be said of it; -1 = none is known. */
    int (*lost)(void *state, char message[EPX_MAX_ERROR_STRING]);
    /* Whether this rank's process has ended, or it has left. */
    int (*gone)(void *state, int rank);
    /* Whether a rank has given up and left, and what it said of that. */
    int (*told)(void *state, char message[EPX_MAX_ERROR_STRING]);
    /* Tells the others that this rank leaves, and for what error it gave up, if it did, and frees
     * the state. */
    void (*free)(void *state, int error, const char *message);
};

struct epx_control {
    const struct epx_control_ops *ops;
    void *state;
};

int epx_mailbox_open(const struct epx_control *control, enum epx_tag tag, size_t most_bytes,
                     int num_spare, struct epx_mailbox **mailbox);
/* Takes NULL. */
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
/* Gives the next letter that came, valid until the next call; NULL = none. As many bytes as the
 * longest letter has can be read; it tells by itself which of them count. */
int epx_mailbox_take(struct epx_mailbox *mailbox, const void **letter);
/* Gives letters on their way some time to leave. */
void epx_mailbox_flush(struct epx_mailbox *mailbox, int64_t bound_ms);

#endif
