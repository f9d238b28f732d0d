/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * letter_liveness.c - liveness by letters (control.h). Every rank looks for them at every pass: an
 * ASK is answered with this rank's position, an END ends the communicator here as well. A rank that
 * never looks never answers. tests/model/comm_end.pml has what letters can promise.
 */
#include "core/letter_liveness.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum letter_kind { LETTER_ASK, LETTER_ANSWER, LETTER_END };
enum { ANSWERS_MS = 200 };

struct letter {
    int32_t kind, sender;
    uint64_t position;
    char message[EPX_MAX_ERROR_STRING];
};

struct epx_letter_liveness {
    struct epx_comm *comm;
    struct epx_mailbox *mailbox;
    char *answered;      /* [R] since the last probe */
    uint64_t *positions; /* [R] */
    uint64_t position;
};

/* A letter that cannot be sent is lost: its receiver then takes this rank for silent. */
static void send_letter(struct epx_letter_liveness *liveness, int rank, enum letter_kind kind,
                        const char *message)
{
    struct letter letter = {(int32_t)kind, liveness->comm->rank, liveness->position, ""};

    snprintf(letter.message, sizeof(letter.message), "%s", message);
    epx_mailbox_send(liveness->mailbox, rank, &letter, sizeof(letter));
}

static void send_to_others(struct epx_letter_liveness *liveness, enum letter_kind kind,
                           const char *message)
{
    for (int r = 0; r < liveness->comm->size; r++)
        if (r != liveness->comm->rank)
            send_letter(liveness, r, kind, message);
}

void epx_letter_liveness_free(struct epx_letter_liveness *liveness)
{
    if (!liveness)
        return;
    epx_mailbox_close(liveness->mailbox);
    free(liveness->answered);
    free(liveness->positions);
    free(liveness);
}

static int init(struct epx_letter_liveness *liveness)
{
    size_t ranks = (size_t)liveness->comm->size;

    liveness->answered = calloc(ranks, sizeof(*liveness->answered));
    liveness->positions = calloc(ranks, sizeof(*liveness->positions));
    EPX_FAIL_IF(!liveness->answered || !liveness->positions, EPX_ERR_NO_MEM,
                "no memory for letters of %zu ranks", ranks);
    return epx_mailbox_open(&liveness->comm->control, EPX_TAG_LIVENESS, sizeof(struct letter), 0,
                            &liveness->mailbox);
}

int epx_letter_liveness_create(struct epx_comm *comm, struct epx_letter_liveness **result)
{
    struct epx_letter_liveness *liveness = calloc(1, sizeof(*liveness));
    int rc;

    EPX_FAIL_IF(!liveness, EPX_ERR_NO_MEM, "no memory for letters");
    liveness->comm = comm;
    rc = init(liveness);
    if (rc != EPX_SUCCESS) {
        epx_letter_liveness_free(liveness);
        return rc;
    }
    *result = liveness;
    return EPX_SUCCESS;
}

static int read_letter(struct epx_letter_liveness *liveness, const struct letter *letter,
                       char *message)
{
    if (letter->kind == LETTER_END) {
        memcpy(message, letter->message, sizeof(letter->message));
        return 1;
    }
    if (letter->kind == LETTER_ASK) {
        send_letter(liveness, letter->sender, LETTER_ANSWER, "");
        return 0;
    }
    liveness->answered[letter->sender] = 1;
    liveness->positions[letter->sender] = letter->position;
    return 0;
}

int epx_letter_liveness_beat(struct epx_letter_liveness *liveness, uint64_t position, char *message)
{
    const void *letter;

    liveness->position = position;
    while (epx_mailbox_take(liveness->mailbox, &letter) == EPX_SUCCESS && letter)
        if (read_letter(liveness, letter, message))
            return 1;
    return 0;
}

static void probe(void *state)
{
    struct epx_letter_liveness *liveness = state;

    memset(liveness->answered, 0, (size_t)liveness->comm->size);
    send_to_others(liveness, LETTER_ASK, "");
}

static int answered(void *state, int rank, uint64_t *position)
{
    const struct epx_letter_liveness *liveness = state;

    *position = liveness->positions[rank];
    return liveness->answered[rank];
}

void epx_letter_liveness_announce(struct epx_letter_liveness *liveness, const char *message)
{
    send_to_others(liveness, LETTER_END, message);
}

/* The first suspect from here on that did not answer; this rank if all did. */
static int find_silent(const struct epx_letter_liveness *liveness, int first, const char *suspects)
{
    int size = liveness->comm->size, self = liveness->comm->rank;

    for (int i = 0; i < size; i++) {
        int rank = (first + i) % size;

        if (rank != self && suspects[rank] && !liveness->answered[rank])
            return rank;
    }
    return self;
}

int epx_letter_liveness_blame(struct epx_letter_liveness *liveness, int first, const char *suspects,
                              char *message)
{
    int64_t end = epx_deadline_in(ANSWERS_MS);
    int self = liveness->comm->rank, silent;

    probe(liveness);
    do {
        if (epx_letter_liveness_beat(liveness, liveness->position, message))
            return -1;
        silent = find_silent(liveness, first, suspects);
        sched_yield();
    } while (silent != self && !epx_deadline_is_over(end));
    return silent == self ? first : silent;
}

static int beat(void *state, uint64_t position, char *message)
{
    return epx_letter_liveness_beat(state, position, message);
}

static void announce(void *state, char *message)
{
    epx_letter_liveness_announce(state, message);
}

static const struct epx_liveness_ops ops = {
    .beat = beat,
    .probe = probe,
    .answered = answered,
    .announce = announce,
};

struct epx_liveness epx_letter_liveness_of(struct epx_letter_liveness *liveness)
{
    return (struct epx_liveness){&ops, liveness};
}
