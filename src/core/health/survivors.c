/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * survivors.c - who goes on of the ranks of a communicator that has ended.
 *
 * Letters of the control plane, which goes on working between those that live:
 *
 *   JOIN       to all: this rank wants to go on, in its attempt of this number
 *   PROPOSE    from the lowest rank that joined to all that joined: the group
 *   GATHER     within the group: this rank's part of an allgather of this number
 *   LEFT       to all outside the group, once it has a new communicator: it went on without them
 *
 * A rank waits until each other one has joined, or is known to be gone, or epx_timeout_ms are over,
 * then for the proposal of the lowest that joined and is not gone. If that one goes, too, the next
 * lowest proposes. A rank takes the first proposal of its attempt, if it is in it, and no other.
 *
 * Why ranks that go on agree: proposals alone promise nothing, as two ranks may have proposed. But
 * the new communicator is made by those of a group in collectives of the group, and is there only
 * when each of its ranks was READY with the same group (birth.c). So no rank is in two, and all of
 * a group come to one verdict. A rank that stopped and wakes finds the JOIN of all, waits for a
 * proposal, and gets LEFT. If it never hears of the others it takes them for gone and is alone, as
 * ranks are that a cut network parts: each part goes on.
 *
 * tests/model/shrink.pml checks this.
 */
#include "core/health/survivors.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pause.h"
#include "core/progress.h"

enum letter_kind { LETTER_JOIN, LETTER_PROPOSE, LETTER_GATHER, LETTER_LEFT };
enum { PART_BYTES = 2048, FLUSH_MS = 50, MOST_ATTEMPTS = 1 << 30 };

struct letter {
    int32_t kind, sender, attempt, number;
    char data[PART_BYTES]; /* of a proposal a bit for each rank, of a gather the part */
};

/* What came of a gather; a rank may be one ahead. */
struct part {
    int32_t attempt, number;
    char data[PART_BYTES];
};

struct epx_survivors {
    struct epx_comm *comm;
    struct epx_mailbox *mailbox;
    struct letter letter; /* that is being sent */
    int attempt;          /* of this rank, and the latest that any rank is in */
    int latest;
    int left;       /* the others went on without this rank */
    int *joined;    /* [R] the last attempt that each rank has joined */
    int proposed;   /* the attempt of the proposal that this rank took */
    char *proposal; /* [PART_BYTES] bits */
    int *ranks;     /* [R] the group */
    int num, own;
    int gathers;             /* so many in this attempt */
    struct part (*parts)[2]; /* [R] */
    int64_t end_ns;
};

static int has_bit(const char *bits, int rank)
{
    return bits[rank / 8] >> rank % 8 & 1;
}

static void free_arrays(struct epx_survivors *survivors)
{
    free(survivors->joined);
    free(survivors->proposal);
    free(survivors->ranks);
    free(survivors->parts);
}

void epx_survivors_free(struct epx_survivors *survivors)
{
    if (!survivors)
        return;
    epx_mailbox_flush(survivors->mailbox, FLUSH_MS);
    epx_mailbox_close(survivors->mailbox);
    free_arrays(survivors);
    free(survivors);
}

static int init(struct epx_survivors *survivors)
{
    size_t ranks = (size_t)survivors->comm->size;

    EPX_FAIL_IF(ranks > 8 * PART_BYTES, EPX_ERR_UNSUPPORTED, "%zu ranks, at most %d", ranks,
                8 * PART_BYTES);
    survivors->joined = calloc(ranks, sizeof(*survivors->joined));
    survivors->proposal = calloc(1, PART_BYTES);
    survivors->ranks = calloc(ranks, sizeof(*survivors->ranks));
    survivors->parts = calloc(ranks, sizeof(*survivors->parts));
    EPX_FAIL_IF(!survivors->joined || !survivors->proposal || !survivors->ranks ||
                    !survivors->parts,
                EPX_ERR_NO_MEM, "no memory for letters of %zu ranks", ranks);
    return epx_mailbox_open(&survivors->comm->control, EPX_TAG_SURVIVORS, sizeof(struct letter), 0,
                            &survivors->mailbox);
}

static int open_survivors(struct epx_comm *comm)
{
    struct epx_survivors *survivors = calloc(1, sizeof(*survivors));
    int rc;

    EPX_FAIL_IF(!survivors, EPX_ERR_NO_MEM, "no memory for letters");
    survivors->comm = comm;
    rc = init(survivors);
    if (rc != EPX_SUCCESS) {
        free_arrays(survivors);
        free(survivors);
        return rc;
    }
    comm->survivors = survivors;
    return EPX_SUCCESS;
}

/* Sends the letter whose data is filled in. A rank that does not get it is taken for gone, or takes
 * this one for gone. */
static void tell(struct epx_survivors *survivors, int rank, enum letter_kind kind, size_t bytes)
{
    struct letter *letter = &survivors->letter;

    letter->kind = (int32_t)kind;
    letter->sender = survivors->comm->rank;
    letter->attempt = survivors->attempt;
    letter->number = survivors->gathers;
    epx_mailbox_send(survivors->mailbox, rank, letter, offsetof(struct letter, data) + bytes);
}

static void read_part(struct epx_survivors *survivors, const struct letter *letter)
{
    struct part *part = &survivors->parts[letter->sender][letter->number & 1];

    part->attempt = letter->attempt;
    part->number = letter->number;
    memcpy(part->data, letter->data, sizeof(part->data));
}

static void read_letter(struct epx_survivors *survivors, const struct letter *letter)
{
    const int rank = survivors->comm->rank;

    if (letter->sender < 0 || letter->sender >= survivors->comm->size || letter->attempt < 0 ||
        letter->attempt > MOST_ATTEMPTS)
        return;
    if (letter->attempt > survivors->latest)
        survivors->latest = letter->attempt;
    switch ((enum letter_kind)letter->kind) {
    case LETTER_JOIN: survivors->joined[letter->sender] = letter->attempt; break;
    case LETTER_PROPOSE:
        if (survivors->proposed < letter->attempt && has_bit(letter->data, rank)) {
            survivors->proposed = letter->attempt;
            memcpy(survivors->proposal, letter->data, PART_BYTES);
        }
        break;
    case LETTER_GATHER: read_part(survivors, letter); break;
    case LETTER_LEFT: survivors->left = 1; break;
    }
}

/* Hears the others; the lock is held. */
static void listen(struct epx_survivors *survivors)
{
    const struct epx_control *control = &survivors->comm->control;
    const void *letter;

    if (control->ops->pass)
        control->ops->pass(control->state, 1);
    while (epx_mailbox_take(survivors->mailbox, &letter) == EPX_SUCCESS && letter)
        read_letter(survivors, letter);
}

static int is_gone(const struct epx_survivors *survivors, int rank)
{
    const struct epx_control *control = &survivors->comm->control;

    return control->ops->gone && control->ops->gone(control->state, rank);
}

static int has_joined(const struct epx_survivors *survivors, int rank)
{
    return rank == survivors->comm->rank || survivors->joined[rank] == survivors->attempt;
}

/* The lowest rank that has joined and is not known to be gone. */
static int find_proposer(const struct epx_survivors *survivors)
{
    int rank = 0;

    while (!has_joined(survivors, rank) ||
           (rank != survivors->comm->rank && is_gone(survivors, rank)))
        rank++;
    return rank;
}

static int is_proposed(struct epx_survivors *survivors)
{
    return survivors->proposed == survivors->attempt;
}

/* Or another rank does not wait any longer for those that have not. */
static int all_have_joined(struct epx_survivors *survivors)
{
    if (is_proposed(survivors))
        return 1;
    for (int r = 0; r < survivors->comm->size; r++)
        if (!has_joined(survivors, r) && !is_gone(survivors, r))
            return 0;
    return 1;
}

/* Also when this rank is to propose. */
static int has_proposer(struct epx_survivors *survivors)
{
    return is_proposed(survivors) || find_proposer(survivors) == survivors->comm->rank;
}

static int part_lacks(const struct epx_survivors *survivors, int place)
{
    const int rank = survivors->ranks[place];
    const struct part *part = &survivors->parts[rank][survivors->gathers & 1];

    return place != survivors->own &&
           (part->attempt != survivors->attempt || part->number != survivors->gathers);
}

static int all_parts_came(struct epx_survivors *survivors)
{
    for (int i = 0; i < survivors->num; i++)
        if (part_lacks(survivors, i))
            return 0;
    return 1;
}

/* A rank of the group whose part will not come; -1 = none is known. */
static int find_lost(const struct epx_survivors *survivors)
{
    for (int i = 0; i < survivors->num; i++)
        if (part_lacks(survivors, i) && is_gone(survivors, survivors->ranks[i]))
            return survivors->ranks[i];
    return -1;
}

/* Waits until the condition holds, or this rank is left; returns whether it holds. */
static int await(struct epx_survivors *survivors, int (*holds)(struct epx_survivors *survivors),
                 int of_group)
{
    int idle = 0, held = 0, over = 0;

    while (!held && !over) {
        epx_lock();
        epx_progress();
        listen(survivors);
        held = holds(survivors);
        over = survivors->left || (of_group && find_lost(survivors) >= 0) ||
               survivors->latest > survivors->attempt ||
               (survivors->end_ns && epx_deadline_is_over(survivors->end_ns));
        epx_unlock();
        if (!held && !over)
            epx_pause(idle++);
    }
    return held && !survivors->left;
}

static void bound(struct epx_survivors *survivors, int64_t ms)
{
    survivors->end_ns = ms ? epx_deadline_in(ms) : 0;
}

/* Joins the latest attempt that any rank is in, or a new one. */
static void join(struct epx_survivors *survivors)
{
    survivors->attempt =
        survivors->latest > survivors->attempt ? survivors->latest : survivors->attempt + 1;
    survivors->latest = survivors->attempt;
    survivors->gathers = 0;
    epx_lock();
    for (int r = 0; r < survivors->comm->size; r++)
        if (r != survivors->comm->rank)
            tell(survivors, r, LETTER_JOIN, 0);
    epx_unlock();
}

/* Proposes those that have joined and are not gone. */
static void propose(struct epx_survivors *survivors)
{
    char *bits = survivors->letter.data;
    const int size = survivors->comm->size, rank = survivors->comm->rank;

    epx_lock();
    memset(bits, 0, PART_BYTES);
    for (int r = 0; r < size; r++)
        if (has_joined(survivors, r) && (r == rank || !is_gone(survivors, r)))
            bits[r / 8] = (char)(bits[r / 8] | 1 << r % 8);
    memcpy(survivors->proposal, bits, PART_BYTES);
    survivors->proposed = survivors->attempt;
    for (int r = 0; r < size; r++)
        if (r != rank && has_bit(survivors->proposal, r))
            tell(survivors, r, LETTER_PROPOSE, PART_BYTES);
    epx_unlock();
}

static void take_proposal(struct epx_survivors *survivors)
{
    survivors->num = 0;
    for (int r = 0; r < survivors->comm->size; r++) {
        if (!has_bit(survivors->proposal, r))
            continue;
        if (r == survivors->comm->rank)
            survivors->own = survivors->num;
        survivors->ranks[survivors->num++] = r;
    }
}

/* Returns 0 if the attempt failed: another rank is in a later one. */
static int try_to_agree(struct epx_survivors *survivors)
{
    const int64_t timeout_ms = survivors->comm->params.timeout_ms;

    join(survivors);
    bound(survivors, timeout_ms);
    await(survivors, all_have_joined, 0);
    bound(survivors, timeout_ms ? timeout_ms / 2 + 1 : 0);
    if (!survivors->left && survivors->latest == survivors->attempt &&
        await(survivors, has_proposer, 0) && !is_proposed(survivors))
        propose(survivors);
    return is_proposed(survivors);
}

int epx_survivors_find(struct epx_comm *comm, struct epx_survivors_group *group)
{
    const int64_t timeout_ms = comm->params.timeout_ms;
    int64_t end = epx_deadline_in(timeout_ms);
    struct epx_survivors *survivors;
    int agreed;

    if (!comm->survivors)
        EPX_TRY(open_survivors(comm));
    survivors = comm->survivors;
    do
        agreed = try_to_agree(survivors);
    while (!agreed && !survivors->left && survivors->latest > survivors->attempt &&
           (!timeout_ms || !epx_deadline_is_over(end)));
    EPX_FAIL_IF(survivors->left, EPX_ERR_TIMEOUT, "the other ranks went on without rank %d",
                comm->rank);
    EPX_FAIL_IF(!agreed, EPX_ERR_TIMEOUT, "no rank said within %lld ms which ranks go on",
                (long long)timeout_ms);
    take_proposal(survivors);
    *group = (struct epx_survivors_group){survivors->ranks, survivors->num, survivors->own};
    return EPX_SUCCESS;
}

static int check_gather(const struct epx_survivors *survivors, int came)
{
    const int lost = find_lost(survivors);

    if (came)
        return EPX_SUCCESS;
    EPX_FAIL_IF(survivors->left, EPX_ERR_TIMEOUT, "the other ranks went on without rank %d",
                survivors->comm->rank);
    EPX_FAIL_IF(lost >= 0, EPX_ERR_TIMEOUT, "rank %d is gone", lost);
    for (int i = 0; i < survivors->num; i++)
        EPX_FAIL_IF(part_lacks(survivors, i), EPX_ERR_TIMEOUT, "rank %d did not answer",
                    survivors->ranks[i]);
    return EPX_SUCCESS;
}

int epx_survivors_allgather(const void *own, void *all, size_t bytes, void *comm)
{
    struct epx_survivors *survivors = ((struct epx_comm *)comm)->survivors;
    const int64_t timeout_ms = survivors->comm->params.timeout_ms;
    int came;

    EPX_FAIL_IF(bytes > PART_BYTES, EPX_ERR_INTERN, "a part of %zu bytes", bytes);
    survivors->gathers++;
    epx_lock();
    memcpy(survivors->letter.data, own, bytes);
    for (int i = 0; i < survivors->num; i++)
        if (i != survivors->own)
            tell(survivors, survivors->ranks[i], LETTER_GATHER, bytes);
    epx_unlock();
    bound(survivors, timeout_ms ? timeout_ms / 2 + 1 : 0);
    came = await(survivors, all_parts_came, 1);
    EPX_TRY(check_gather(survivors, came));
    for (int i = 0; i < survivors->num; i++)
        memcpy((char *)all + (size_t)i * bytes,
               i == survivors->own
                   ? own
                   : survivors->parts[survivors->ranks[i]][survivors->gathers & 1].data,
               bytes);
    return EPX_SUCCESS;
}

void epx_survivors_leave_others(struct epx_comm *comm)
{
    struct epx_survivors *survivors = comm->survivors;

    epx_lock();
    for (int r = 0; r < comm->size; r++)
        if (!has_bit(survivors->proposal, r))
            tell(survivors, r, LETTER_LEFT, 0);
    epx_unlock();
}
