/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control_sockets.c - a control plane by sockets between all ranks.
 *
 * allreduce and allgather go up a binomial tree to rank 0, and down again: the parent of a rank is
 * the rank without its lowest bit, and below a rank is the block of ranks up to the next one whose
 * lowest bit is as high. So what comes up from a rank are the values of consecutive ranks. A bcast
 * goes from its root to every other rank at once. A rank may be ahead in the collectives: what came
 * from it waits in the order in which it came, and each collective takes one frame from each rank
 * that it hears from. The lengths must be those of the collective, or the ranks have called
 * different ones.
 */
#include "control/control_sockets.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

enum { KIND_COLLECTIVE = EPX_NUM_TAGS, NUM_KINDS }; /* lower ones: letters, by their tag */
enum { LOOK_NS = 1000000, HEARING_NS = 50000000, MOST_VALUES = 2 };

enum collective_kind { NONE, REDUCE, GATHER, BROADCAST };

struct collective {
    enum collective_kind kind;
    enum epx_fold fold;
    int root;       /* of a bcast */
    uint32_t bytes; /* a rank gives */
    char *all;      /* of a gather [size][bytes]; else the values or the data */
    int next_child; /* as its distance: 1, 2, 4, ...; what is below has come */
    int goes_down;  /* this rank's part has gone up */
    int awaited;    /* the rank that it waits for, -1 = none */
};

struct mailbox {
    struct epx_mailbox base;
    struct epx_sockets *sockets;
    enum epx_tag tag;
    size_t most_bytes;
    _Alignas(8) char letter[]; /* [most_bytes] that was taken last */
};

struct epx_sockets {
    struct epx_connections connections;
    struct epx_frames letters[EPX_NUM_TAGS];
    struct epx_frames *came; /* [size] of collectives */
    struct collective collective;
    int64_t look_ns;  /* when to look again at the latest */
    int64_t since_ns; /* since when a rank is known to be lost; 0 = none is */
};

struct epx_connections *epx_sockets_connections(struct epx_sockets *sockets)
{
    return &sockets->connections;
}

static int take_frame(void *owner, struct epx_frame *frame)
{
    struct epx_sockets *sockets = owner;

    if (frame->kind == KIND_COLLECTIVE) {
        epx_frames_append(&sockets->came[frame->rank], frame);
        return 1;
    }
    if (frame->kind > EPX_FRAME_BYE && frame->kind < KIND_COLLECTIVE) {
        epx_frames_append(&sockets->letters[frame->kind], frame);
        return 1;
    }
    free(frame);
    return 0;
}

int epx_sockets_create(int rank, int size, struct epx_sockets **result)
{
    struct epx_sockets *sockets = epx_memory_zeroed(1, sizeof(*sockets));
    int rc;

    EPX_FAIL_IF(!sockets, EPX_ERR_NO_MEM, "no memory for sockets");
    sockets->came = epx_memory_zeroed((size_t)size, sizeof(*sockets->came));
    sockets->connections.take = take_frame;
    sockets->connections.owner = sockets;
    rc = sockets->came ? epx_connections_init(&sockets->connections, rank, size)
                       : epx_fail(EPX_ERR_NO_MEM, "no memory for sockets to %d ranks", size);
    if (rc != EPX_SUCCESS) {
        epx_sockets_free(sockets);
        return rc;
    }
    *result = sockets;
    return EPX_SUCCESS;
}

/* A rank that gave up says why: otherwise one that has not heard yet who was the first to do so
 * would take this rank for gone. */
static void free_sockets(void *state, int error, const char *message)
{
    struct epx_sockets *sockets = state;
    const int size = sockets->connections.size;
    struct epx_reason reason = {.code = error};

    snprintf(reason.message, sizeof(reason.message), "%s", message);
    epx_connections_close(&sockets->connections, &reason);
    for (int tag = 0; tag < EPX_NUM_TAGS; tag++)
        epx_frames_free(&sockets->letters[tag]);
    for (int r = 0; sockets->came && r < size; r++)
        epx_frames_free(&sockets->came[r]);
    free(sockets->came);
    free(sockets);
}

void epx_sockets_free(struct epx_sockets *sockets)
{
    if (sockets)
        free_sockets(sockets, EPX_SUCCESS, "");
}

/* The number of ranks from this one on that are below it in the tree, itself too. */
static int ranks_below(int rank, int size)
{
    int span = rank & -rank;

    return rank == 0 || rank + span > size ? size - rank : span;
}

static void send_part(struct epx_sockets *sockets, int rank, const void *data, size_t bytes)
{
    const struct epx_part part = {data, bytes};

    epx_connections_send(&sockets->connections, rank, KIND_COLLECTIVE, part);
}

/* The next frame of the rank; NULL and *rc EPX_SUCCESS if it has not come yet. */
static struct epx_frame *receive_part(struct epx_sockets *sockets, int rank, size_t bytes, int *rc)
{
    struct epx_frame *frame = epx_frames_take(&sockets->came[rank]);

    *rc = EPX_SUCCESS;
    sockets->collective.awaited = frame ? -1 : rank;
    if (!frame || frame->bytes == bytes)
        return frame;
    *rc = epx_fail(EPX_ERR_ARG,
                   "rank %d is in another collective call than rank %d: %u bytes came, not %zu",
                   rank, sockets->connections.rank, frame->bytes, bytes);
    free(frame);
    return NULL;
}

static void fold(const struct collective *collective, const struct epx_frame *frame)
{
    int64_t value, other;

    for (size_t at = 0; at < collective->bytes; at += sizeof(value)) {
        memcpy(&value, collective->all + at, sizeof(value));
        memcpy(&other, frame->data + at, sizeof(other));
        if (collective->fold == EPX_FOLD_MIN ? other < value : other > value)
            memcpy(collective->all + at, &other, sizeof(other));
    }
}

/* Bytes that all ranks from `rank` on to the next one beside it give together. */
static size_t bytes_of(const struct epx_sockets *sockets, int rank)
{
    const struct collective *collective = &sockets->collective;

    if (collective->kind == REDUCE)
        return collective->bytes;
    return (size_t)ranks_below(rank, sockets->connections.size) * collective->bytes;
}

static int has_child(const struct epx_sockets *sockets, int distance)
{
    const int rank = sockets->connections.rank, span = rank & -rank;

    return (rank == 0 || distance < span) && rank + distance < sockets->connections.size;
}

/* Takes what the children send up; then sends it on. */
static int go_up(struct epx_sockets *sockets)
{
    struct collective *collective = &sockets->collective;
    const int rank = sockets->connections.rank;
    int rc;

    for (; has_child(sockets, collective->next_child); collective->next_child *= 2) {
        const int child = rank + collective->next_child;
        struct epx_frame *frame = receive_part(sockets, child, bytes_of(sockets, child), &rc);

        if (!frame)
            return rc;
        if (collective->kind == REDUCE)
            fold(collective, frame);
        else
            memcpy(collective->all + (size_t)child * collective->bytes, frame->data, frame->bytes);
        free(frame);
    }
    if (rank)
        send_part(sockets, rank & (rank - 1),
                  collective->all +
                      (collective->kind == GATHER ? (size_t)rank * collective->bytes : 0),
                  bytes_of(sockets, rank));
    collective->goes_down = 1;
    return EPX_SUCCESS;
}

/* Takes what the parent sends down, and sends it on to the children, the furthest first. */
static int go_down(struct epx_sockets *sockets)
{
    struct collective *collective = &sockets->collective;
    const int rank = sockets->connections.rank;
    const size_t bytes = bytes_of(sockets, 0);
    int rc;

    if (rank) {
        struct epx_frame *frame = receive_part(sockets, rank & (rank - 1), bytes, &rc);

        if (!frame)
            return rc;
        memcpy(collective->all, frame->data, bytes);
        free(frame);
    }
    for (int distance = collective->next_child / 2; distance; distance /= 2)
        send_part(sockets, rank + distance, collective->all, bytes);
    collective->kind = NONE;
    return EPX_SUCCESS;
}

static int receive_bcast(struct epx_sockets *sockets)
{
    struct collective *collective = &sockets->collective;
    int rc;
    struct epx_frame *frame = receive_part(sockets, collective->root, collective->bytes, &rc);

    if (!frame)
        return rc;
    memcpy(collective->all, frame->data, collective->bytes);
    free(frame);
    collective->kind = NONE;
    return EPX_SUCCESS;
}

static int move_collective(struct epx_sockets *sockets)
{
    const struct collective *collective = &sockets->collective;

    if (collective->kind == BROADCAST)
        return receive_bcast(sockets);
    if (!collective->goes_down)
        EPX_TRY(go_up(sockets));
    return collective->goes_down ? go_down(sockets) : EPX_SUCCESS;
}

static void look(struct epx_sockets *sockets)
{
    epx_connections_pass(&sockets->connections);
    sockets->look_ns = epx_now_ns() + LOOK_NS;
}

static int done(void *state, int *done)
{
    struct epx_sockets *sockets = state;

    look(sockets);
    if (sockets->collective.kind != NONE)
        EPX_TRY(move_collective(sockets));
    *done = sockets->collective.kind == NONE;
    return EPX_SUCCESS;
}

static int allreduce(void *state, int64_t *values, int n, enum epx_fold fold)
{
    struct epx_sockets *sockets = state;

    sockets->collective = (struct collective){.kind = REDUCE,
                                              .fold = fold,
                                              .bytes = (uint32_t)n * (uint32_t)sizeof(*values),
                                              .all = (char *)values,
                                              .next_child = 1,
                                              .awaited = -1};
    return EPX_SUCCESS;
}

static int allgather(void *state, const void *own, int bytes, void *all)
{
    struct epx_sockets *sockets = state;

    memmove((char *)all + (size_t)sockets->connections.rank * (size_t)bytes, own, (size_t)bytes);
    sockets->collective = (struct collective){
        .kind = GATHER, .bytes = (uint32_t)bytes, .all = all, .next_child = 1, .awaited = -1};
    return EPX_SUCCESS;
}

static int bcast(void *state, void *data, int bytes, int root)
{
    struct epx_sockets *sockets = state;

    sockets->collective = (struct collective){
        .kind = BROADCAST, .root = root, .bytes = (uint32_t)bytes, .all = data, .awaited = -1};
    if (root != sockets->connections.rank)
        return EPX_SUCCESS;
    for (int r = 0; r < sockets->connections.size; r++)
        send_part(sockets, r, data, (size_t)bytes);
    sockets->collective.kind = NONE;
    return EPX_SUCCESS;
}

static int open_mailbox(void *state, enum epx_tag tag, size_t most_bytes, int num_spare,
                        struct epx_mailbox **result)
{
    struct mailbox *mailbox = epx_memory_zeroed(1, sizeof(*mailbox) + most_bytes);

    (void)num_spare;
    EPX_FAIL_IF(!mailbox, EPX_ERR_NO_MEM, "no memory for letters");
    mailbox->sockets = state;
    mailbox->tag = tag;
    mailbox->most_bytes = most_bytes;
    *result = &mailbox->base;
    return EPX_SUCCESS;
}

static struct mailbox *mailbox_of(struct epx_mailbox *base)
{
    return (struct mailbox *)(void *)base;
}

static void close_mailbox(struct epx_mailbox *base)
{
    struct mailbox *mailbox = mailbox_of(base);

    epx_frames_free(&mailbox->sockets->letters[mailbox->tag]);
    free(mailbox);
}

/* A letter that waits for room in a socket has left as far as the sender is concerned. */
static int send_letter(struct epx_mailbox *base, int rank, const void *letter, size_t bytes,
                       int confirmed)
{
    struct mailbox *mailbox = mailbox_of(base);
    const struct epx_part part = {letter, bytes};

    (void)confirmed;
    epx_connections_send(&mailbox->sockets->connections, rank, mailbox->tag, part);
    return EPX_SUCCESS;
}

/* Zeros follow a letter that is shorter than the longest: whoever takes it may read as much. */
static int take_letter(struct epx_mailbox *base, const void **letter)
{
    struct mailbox *mailbox = mailbox_of(base);
    struct epx_frame *frame = epx_frames_take(&mailbox->sockets->letters[mailbox->tag]);
    size_t bytes;

    *letter = NULL;
    if (!frame)
        return EPX_SUCCESS;
    bytes = frame->bytes < mailbox->most_bytes ? frame->bytes : mailbox->most_bytes;
    memcpy(mailbox->letter, frame->data, bytes);
    memset(mailbox->letter + bytes, 0, mailbox->most_bytes - bytes);
    free(frame);
    *letter = mailbox->letter;
    return EPX_SUCCESS;
}

static void flush(struct epx_mailbox *base, int64_t bound_ms)
{
    struct epx_connections *connections = &mailbox_of(base)->sockets->connections;
    const int64_t end = epx_deadline_in(bound_ms);

    while (epx_connections_hold(connections) && !epx_deadline_is_over(end)) {
        epx_connections_pass(connections);
        sched_yield();
    }
}

static void pass(void *state, int at_once)
{
    struct epx_sockets *sockets = state;

    if (at_once || epx_now_ns() >= sockets->look_ns)
        look(sockets);
}

/* The rank that is lost, if any: its socket just ended, or it left and is waited for. */
static int find_lost(const struct epx_sockets *sockets)
{
    const struct epx_connections *connections = &sockets->connections;
    const int awaited = sockets->collective.kind == NONE ? -1 : sockets->collective.awaited;

    if (awaited >= 0 && connections->peer[awaited].fd < 0)
        return awaited;
    return connections->gone;
}

static int told(void *state, char message[EPX_MAX_ERROR_STRING])
{
    const struct epx_reason *reason = &((struct epx_sockets *)state)->connections.reason;

    if (reason->code)
        snprintf(message, EPX_MAX_ERROR_STRING, "%s", reason->message);
    return reason->code != EPX_SUCCESS;
}

/*
 * A process may end because of another rank, as one whose errors are fatal does; what it had to say
 * of that may come by another way than its sockets. So a rank counts as lost only after a moment in
 * which others are heard.
 */
static int lost(void *state, char message[EPX_MAX_ERROR_STRING])
{
    struct epx_sockets *sockets = state;
    const int rank = find_lost(sockets);

    if (rank < 0) {
        sockets->since_ns = 0;
        return -1;
    }
    if (!sockets->since_ns)
        sockets->since_ns = epx_now_ns();
    if (epx_now_ns() - sockets->since_ns < HEARING_NS)
        return -1;
    snprintf(message, EPX_MAX_ERROR_STRING,
             sockets->connections.peer[rank].state == EPX_PEER_LEFT
                 ? "rank %d has left the communicator"
                 : "rank %d is gone: its process has ended, or its connection",
             rank);
    return rank;
}

static int gone(void *state, int rank)
{
    const struct epx_connections *connections = &((struct epx_sockets *)state)->connections;

    return rank != connections->rank && connections->peer[rank].state != EPX_PEER_HERE;
}

const struct epx_control_ops epx_control_sockets = {
    .name = "sockets",
    .allreduce = allreduce,
    .allgather = allgather,
    .bcast = bcast,
    .done = done,
    .open = open_mailbox,
    .close = close_mailbox,
    .send = send_letter,
    .take = take_letter,
    .flush = flush,
    .pass = pass,
    .lost = lost,
    .gone = gone,
    .told = told,
    .free = free_sockets,
};
