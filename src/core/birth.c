/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * birth.c - letters between ranks that make a communicator, and the verdict about it.
 *
 * An agreement (agree.h) alone cannot give all ranks the same verdict: a rank that stops inside it
 * may have let some ranks go and not others. So the making has two stages. A rank is MAKING until
 * it knows what all ranks agreed on; then it is READY. The letters:
 *
 *   HELLO          to all, when the letters are opened: this rank has the traffic communicator
 *   CONFIRMED      to all, once all have letters: MPI makes its ways for long messages by it
 *   READY          to all, once, when the rank becomes READY
 *   ASK, ANSWER    who lives
 *   END            to all, when a rank gives up: its stage, the culprit, the message
 *
 * Over sockets ranks have met before, so there are no HELLO and CONFIRMED.
 *
 * A rank succeeds with what was agreed on when it has READY from all. A MAKING rank that gives up,
 * or gets an END, fails and tells all by an END. A READY rank that gives up, or gets an END, waits
 * for a word, READY or END, from every rank but the culprit. Then it fails if a rank other than the
 * culprit ended while MAKING; else it keeps what was agreed on, and the communicator is finished.
 *
 * Why all that live come to one verdict:
 *   - One of them gave up while MAKING. It never sent READY, so nobody had READY from all. All
 *     others lack its READY, so they wait for its word, and hear its END: all fail.
 *   - None of them did. Then each is READY, and keeps what was agreed on.
 * The wait for a word is bounded: it is cut short only if a second rank stops as well.
 *
 * Who is to blame: a rank that does not answer. A rank that was never heard may still be making the
 * traffic communicator, kept waiting by another, so of several such ranks none is blamed. A rank
 * whose READY came may have left and be busy elsewhere. It is blamed only if a rank that is not
 * READY answers: then nobody can have left.
 */
#include "core/birth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pause.h"
#include "core/health/comm_end.h"
#include "core/health/patience.h"
#include "core/progress.h"

enum letter_kind {
    LETTER_HELLO,
    LETTER_CONFIRMED,
    LETTER_READY,
    LETTER_ASK,
    LETTER_ANSWER,
    LETTER_END
};
enum stage { STAGE_MAKING, STAGE_READY };
enum { LETTERS_MS = 50, WORDS_MS = 2000 };

struct letter {
    int32_t kind, sender, stage, culprit;
    char message[EPX_MAX_ERROR_STRING]; /* of an END; other letters end before it */
};

struct epx_birth {
    struct epx_comm *comm;
    struct epx_mailbox *mailbox;
    enum stage stage;
    int culprit;  /* of the first END, its own or another's; -1 = unknown */
    int told_end; /* this rank sent its END, with this message */
    char end[EPX_MAX_ERROR_STRING];
    int making_ended;     /* a rank other than the culprit gave up while MAKING */
    unsigned char *heard; /* [R] bits of enum letter_kind */
};

static int heard(const struct epx_birth *birth, int rank, enum letter_kind kind)
{
    return (birth->heard[rank] >> kind) & 1;
}

/* Whether the control plane connected all ranks when it was made: then each has said hello, and
 * there are ways for messages. */
static int are_connected(const struct epx_comm *comm)
{
    return comm->control.ops->lost != NULL;
}

static int tell(struct epx_birth *birth, int rank, enum letter_kind kind, const char *message)
{
    struct letter letter = {(int32_t)kind, birth->comm->rank, (int32_t)birth->stage, birth->culprit,
                            ""};

    if (kind == LETTER_CONFIRMED)
        return epx_mailbox_send_confirmed(birth->mailbox, rank, &letter,
                                          offsetof(struct letter, message));
    snprintf(letter.message, sizeof(letter.message), "%s", message);
    return epx_mailbox_send(birth->mailbox, rank, &letter,
                            kind == LETTER_END ? sizeof(letter) : offsetof(struct letter, message));
}

static int tell_all(struct epx_birth *birth, enum letter_kind kind, const char *message)
{
    int rc = EPX_SUCCESS;

    for (int r = 0; r < birth->comm->size; r++)
        if (r != birth->comm->rank && tell(birth, r, kind, message) != EPX_SUCCESS)
            rc = EPX_ERR_MPI;
    return rc;
}

static void tell_end(struct epx_birth *birth, const char *message)
{
    if (birth->told_end)
        return;
    birth->told_end = 1;
    snprintf(birth->end, sizeof(birth->end), "%s", message);
    tell_all(birth, LETTER_END, message);
}

static void read_end(struct epx_birth *birth, const struct letter *letter)
{
    if (!birth->told_end) {
        birth->culprit = letter->culprit;
        tell_end(birth, letter->message);
    }
    if (letter->stage == STAGE_MAKING && letter->sender != birth->culprit)
        birth->making_ended = 1;
}

static void read_letter(struct epx_birth *birth, const struct letter *letter)
{
    birth->heard[letter->sender] |= (unsigned char)(1U << letter->kind);
    if (letter->kind == LETTER_ASK)
        tell(birth, letter->sender, LETTER_ANSWER, "");
    else if (letter->kind == LETTER_END)
        read_end(birth, letter);
}

/* A letter that MPI lost may have been any: this rank gives up. */
static int listen(struct epx_birth *birth)
{
    const void *letter;
    int rc = EPX_SUCCESS;

    do {
        rc = epx_mailbox_take(birth->mailbox, &letter);
        if (letter)
            read_letter(birth, letter);
    } while (letter);
    return rc;
}

static int beat(void *state, uint64_t position, char *message)
{
    struct epx_birth *birth = state;

    (void)position;
    if (listen(birth) != EPX_SUCCESS) {
        epx_status_locate(birth->comm->rank, message);
        tell_end(birth, message);
        return 1;
    }
    if (birth->told_end)
        snprintf(message, EPX_MAX_ERROR_STRING, "%s", birth->end);
    return birth->told_end;
}

static void probe(void *state)
{
    struct epx_birth *birth = state;

    for (int r = 0; r < birth->comm->size; r++)
        birth->heard[r] &= (unsigned char)~(1U << LETTER_ANSWER);
    tell_all(birth, LETTER_ASK, "");
}

static int answered(void *state, int rank, uint64_t *position)
{
    const struct epx_birth *birth = state;

    *position = birth->comm->position;
    return heard(birth, rank, LETTER_ANSWER);
}

static void announce(void *state, char *message)
{
    tell_end(state, message);
}

/* Whether this rank may be what the others wait for. */
static int is_suspect(const struct epx_birth *birth, int rank, int anybody)
{
    return rank != birth->comm->rank && (anybody || !heard(birth, rank, LETTER_READY));
}

/* Whether a rank answers that is not READY, so that nobody can have left. */
static int somebody_is_making(const struct epx_birth *birth)
{
    for (int r = 0; r < birth->comm->size; r++)
        if (is_suspect(birth, r, 0) && heard(birth, r, LETTER_ANSWER))
            return 1;
    return 0;
}

static int find_culprit(void *state)
{
    struct epx_birth *birth = state;
    int anybody = somebody_is_making(birth), num_unheard = 0, unheard = -1;

    birth->culprit = -1;
    for (int r = birth->comm->size - 1; r >= 0; r--) {
        if (heard(birth, r, LETTER_ANSWER) || !is_suspect(birth, r, anybody))
            continue;
        if (birth->heard[r]) {
            birth->culprit = r;
        } else {
            unheard = r;
            num_unheard++;
        }
    }
    if (birth->culprit < 0 && num_unheard == 1)
        birth->culprit = unheard;
    return birth->culprit;
}

static void blame(void *state, int rank)
{
    struct epx_birth *birth = state;

    if (!birth->told_end)
        birth->culprit = rank;
}

static const struct epx_liveness_ops birth_ops = {
    .beat = beat,
    .probe = probe,
    .answered = answered,
    .announce = announce,
    .blame = blame,
    .culprit = find_culprit,
};

static int open_letters(struct epx_birth *birth)
{
    struct epx_comm *comm = birth->comm;

    birth->heard = calloc((size_t)comm->size, sizeof(*birth->heard));
    EPX_FAIL_IF(!birth->heard, EPX_ERR_NO_MEM, "no memory for letters of %d ranks", comm->size);
    EPX_TRY(epx_mailbox_open(&comm->control, EPX_TAG_BIRTH, sizeof(struct letter),
                             2 * (comm->size - 1), &birth->mailbox));
    if (!are_connected(birth->comm))
        return tell_all(birth, LETTER_HELLO, "");
    memset(birth->heard, 1 << LETTER_HELLO, (size_t)birth->comm->size);
    return EPX_SUCCESS;
}

static void free_birth(struct epx_birth *birth)
{
    epx_mailbox_close(birth->mailbox);
    free(birth->heard);
    free(birth);
}

int epx_birth_begin(struct epx_comm *comm)
{
    struct epx_birth *birth = calloc(1, sizeof(*birth));
    int rc;

    EPX_FAIL_IF(!birth, EPX_ERR_NO_MEM, "no memory for letters");
    birth->comm = comm;
    birth->culprit = -1;
    rc = open_letters(birth);
    if (rc != EPX_SUCCESS) {
        free_birth(birth);
        return rc;
    }
    epx_lock();
    comm->birth = (struct epx_liveness){&birth_ops, birth};
    epx_comm_relist(comm);
    epx_unlock();
    return EPX_SUCCESS;
}

int epx_birth_confirm(struct epx_comm *comm)
{
    struct epx_birth *birth = comm->birth.state;
    int rc;

    if (are_connected(comm))
        return EPX_SUCCESS;
    epx_lock();
    rc = tell_all(birth, LETTER_CONFIRMED, "");
    epx_unlock();
    return rc;
}

void epx_birth_end(struct epx_comm *comm)
{
    struct epx_birth *birth = comm->birth.state;

    if (!birth)
        return;
    epx_lock();
    comm->birth = (struct epx_liveness){NULL, NULL};
    epx_comm_relist(comm);
    epx_unlock(); /* no other thread reads the letters any more */
    epx_mailbox_flush(birth->mailbox, LETTERS_MS);
    free_birth(birth);
}

/* Whether all ranks but this and the culprit have sent one of these letters. */
static int all_but_culprit(const struct epx_birth *birth, unsigned letters)
{
    for (int r = 0; r < birth->comm->size; r++)
        if (r != birth->comm->rank && r != birth->culprit && !(birth->heard[r] & letters))
            return 0;
    return 1;
}

/* Returns when all ranks are ready or the communicator is finished. */
static void await_ready(struct epx_comm *comm)
{
    struct epx_clock clock = {0};
    int idle = 0, over = 0;

    while (!over) {
        int moved;

        epx_lock();
        moved = epx_progress();
        epx_comm_clock(comm, &clock, 0, -1);
        over = comm->finished || all_but_culprit(comm->birth.state, 1U << LETTER_READY);
        epx_unlock();
        idle = moved ? 0 : idle + 1;
        if (!over)
            epx_pause(idle);
    }
}

/*
 * After the communicator was finished: returns whether all ranks that live know what was agreed
 * on. They do if the end came by the transport, without an END: then a rank was through with the
 * making.
 */
static int all_knew(struct epx_comm *comm)
{
    struct epx_birth *birth = comm->birth.state;
    int64_t end = epx_deadline_in(epx_shorter_ms(WORDS_MS, comm->params.timeout_ms));
    unsigned words = 1U << LETTER_READY | 1U << LETTER_END;
    int idle = 0, over = 0;

    while (birth->told_end && !over && !birth->making_ended) {
        epx_lock();
        listen(birth);
        epx_progress();
        over = all_but_culprit(birth, words) || epx_deadline_is_over(end);
        epx_unlock();
        epx_pause(idle++);
    }
    return !birth->making_ended;
}

/* Lets ranks that were done before the communicator was finished know that it is. */
static void announce_by_transport(struct epx_comm *comm)
{
    char message[EPX_MAX_ERROR_STRING];

    snprintf(message, sizeof(message), "%s", comm->finish_message);
    epx_lock();
    if (comm->liveness.ops)
        comm->liveness.ops->announce(comm->liveness.state, message);
    epx_unlock();
}

int epx_birth_settle(struct epx_comm *comm, int rc)
{
    struct epx_birth *birth = comm->birth.state;
    char message[EPX_MAX_ERROR_STRING];

    if (comm->finished || !birth)
        return rc;
    snprintf(message, sizeof(message), "%s", epx_status_message());
    epx_lock();
    birth->stage = STAGE_READY;
    if (tell_all(birth, LETTER_READY, "") != EPX_SUCCESS)
        epx_comm_give_up(comm, epx_status_message());
    epx_unlock();
    await_ready(comm);
    if (comm->finished && !all_knew(comm))
        return epx_fail_quietly(comm->finished, comm->finish_message);
    if (comm->finished)
        announce_by_transport(comm);
    return rc == EPX_SUCCESS ? rc : epx_fail_quietly(rc, message);
}
