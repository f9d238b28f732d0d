/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bounce_rounds.c - exchanges of messages between device memories, in rounds of pieces: a piece is
 * copied into a stage, the host transport tells the receiver, and the receiver copies it out. The
 * kernels that wait for the exchange make the copies.
 */
#include "transport/cuda/bounce_rounds.h"
#include "base/clock.h"
#include "base/jitter.h"
#include "kernels/args/device_comm.h"
#include "kernels/ring.h"

#include <string.h>

/*
 * An exchange is some rounds, each an alltoallv of the host transport: every rank gives every other
 * a header and at most one piece of the message. Rounds are numbered through all exchanges, on all
 * ranks alike: the headers of an exchange's first round tell how many rounds each rank needs, and
 * all make the most of these. Round n goes into stage n % 2 of every rank; a sender to which that
 * stage is not mapped sends from its own other stage. While round n is under way, the pieces of
 * round n + 1 leave the GPU. A round is made in four steps:
 *
 *   claim    when the copies from stage n % 2 to the GPU, of round n - 2, have ended: this rank
 *            says that the stage may be stored into (place, of the host transport). It does so
 *            while round n - 1 is under way, whether round n is of the same exchange or the next
 *   fill     for each rank that has said so: its piece is copied from the GPU
 *   begin    when all these copies have ended and round n - 1 is over: the headers are written,
 *            then the alltoallv starts, which tells the others
 *   take     each block that has come is copied to the GPU
 *
 * Where stages are not mapped, round n leaves from the stage that round n - 1 came into: then round
 * n is claimed only when round n - 1 is over and copied to the GPU too.
 *
 * Who does not answer: steps[r] is the last step that rank r is known to have come to: 2n - 1 when
 * it has claimed round n, 2n when its block of round n has come. When nothing has moved for a
 * while, the steps are copied to where kernels look for who is behind.
 * Invariant: steps only grow, and the ranks that a round waits for have smaller ones than those it
 * does not wait for.
 */
enum { STEPS_MS = 1 };

/* In a queue: of two rounds a piece for each rank, the steps, and what a rank sends to itself. */
_Static_assert(2 * EPX_MOST_DEVICE_RANKS + 2 <= EPX_COPY_SLOTS,
               "copies that are under way at once");

struct header {
    uint64_t exchange; /* its number */
    int64_t rounds;    /* that the sender needs */
    int64_t bytes;     /* of the piece */
};

static int all_made(struct epx_bounce *bounce, int queue)
{
    return epx_copies_made(&bounce->copies, queue, epx_copies_asked(&bounce->copies, queue));
}

static void note_step(struct epx_bounce *bounce, int rank, uint64_t step)
{
    if (bounce->steps[rank] >= step)
        return;
    bounce->steps[rank] = step;
    bounce->steps_changed = 1;
}

static int show_steps(struct epx_bounce *bounce, int moved)
{
    int64_t now = epx_now_ns();
    size_t bytes = (size_t)bounce->comm->size * sizeof(*bounce->steps);
    uint64_t *shown = bounce->steps + bounce->comm->size;

    if (moved)
        bounce->moved_ns = now;
    if (!bounce->steps_changed || now - bounce->moved_ns < STEPS_MS * EPX_NS_PER_MS)
        return EPX_SUCCESS;
    if (!epx_copies_made(&bounce->copies, EPX_COPY_IN, bounce->shown))
        return EPX_SUCCESS;
    bounce->steps_changed = 0;
    memcpy(shown, bounce->steps, bytes);
    EPX_TRY(epx_copies_ask(&bounce->copies, EPX_COPY_IN, bounce->exchange->arrived, shown, bytes));
    bounce->shown = epx_copies_asked(&bounce->copies, EPX_COPY_IN);
    return EPX_SUCCESS;
}

/* Whether the copies of the last round that came into the stage of round n have been made. */
static int is_emptied(struct epx_bounce *bounce, uint64_t round)
{
    return epx_copies_made(&bounce->copies, EPX_COPY_IN, bounce->emptied[round % 2]);
}

/* Notes in filling.claimed whether this rank's stage of the next round may be stored into. */
static void claim(struct epx_bounce *bounce)
{
    uint64_t next = bounce->number + 1;

    if (bounce->filling.claimed || !is_emptied(bounce, next))
        return;
    bounce->filling.claimed =
        bounce->is_mapped || (!bounce->under_way && is_emptied(bounce, next + 1));
}

static int copy_out(struct epx_bounce *bounce, int rank)
{
    const struct epx_exchange *exchange = bounce->exchange;
    const struct epx_message *message = &exchange->message[rank];
    size_t bytes = epx_piece_bytes(&bounce->pieces, message->send_bytes, bounce->begun);
    const char *from =
        exchange->send + message->send_at + bounce->begun * bounce->pieces.piece_bytes;

    return epx_copies_ask(&bounce->copies, EPX_COPY_OUT,
                          bounce->filling.place[rank] + EPX_PIECE_HEADER_BYTES, from, bytes);
}

static void ask_for_places(struct epx_bounce *bounce, int *moved)
{
    uint64_t next = bounce->number + 1;
    int64_t share = bounce->pieces.share_bytes;
    int self = bounce->comm->rank;
    char **place = bounce->filling.place, *into = bounce->stage[next % 2] + self * share;

    for (int r = 0; r < bounce->comm->size; r++) {
        if (r == self || place[r])
            continue;
        place[r] = bounce->host.ops->messages->place(
            bounce->host.state, r, bounce->stage[(next + 1) % 2] + r * share, into);
        if (!place[r])
            continue;
        *moved = 1;
        if (bounce->is_mapped)
            note_step(bounce, r, 2 * next - 1);
    }
}

/* Copies pieces to the ranks that have claimed the round; *all tells whether all of them have. */
static int copy_pieces(struct epx_bounce *bounce, int *all)
{
    struct epx_bounce_filling *filling = &bounce->filling;
    int self = bounce->comm->rank, size = bounce->comm->size;

    *all = 1;
    for (int i = 1; i < size; i++) {
        int r = (self + i) % size;

        *all &= filling->place[r] != NULL;
        if (!filling->place[r] || filling->copied[r])
            continue;
        filling->copied[r] = 1;
        EPX_TRY(copy_out(bounce, r));
    }
    return EPX_SUCCESS;
}

static int fill(struct epx_bounce *bounce, int *moved)
{
    struct epx_bounce_filling *filling = &bounce->filling;

    claim(bounce);
    if (!filling->claimed || filling->full)
        return EPX_SUCCESS;
    ask_for_places(bounce, moved);
    if (bounce->begun >= bounce->rounds)
        return EPX_SUCCESS;
    if (!filling->asked)
        EPX_TRY(copy_pieces(bounce, &filling->asked));
    filling->full = filling->asked && all_made(bounce, EPX_COPY_OUT);
    *moved |= filling->full;
    return EPX_SUCCESS;
}

/* Writes the header of each piece, after the piece was copied, and the counts of the alltoallv. */
static void address_blocks(struct epx_bounce *bounce)
{
    const struct epx_exchange *exchange = bounce->exchange;

    for (int r = 0; r < bounce->comm->size; r++) {
        const struct epx_message *message = &exchange->message[r];
        struct header header = {.exchange = exchange->number, .rounds = bounce->own_rounds};
        int others = r != bounce->comm->rank;

        bounce->counts[r] = bounce->counts[bounce->comm->size + r] = 0;
        if (!others)
            continue;
        header.bytes =
            (int64_t)epx_piece_bytes(&bounce->pieces, message->send_bytes, bounce->begun);
        memcpy(bounce->filling.place[r], &header, sizeof(header));
        bounce->counts[r] = EPX_PIECE_HEADER_BYTES + (int)header.bytes;
        bounce->counts[bounce->comm->size + r] =
            EPX_PIECE_HEADER_BYTES +
            (int)epx_piece_bytes(&bounce->pieces, message->recv_bytes, bounce->begun);
    }
}

static int begin(struct epx_bounce *bounce, int *moved)
{
    size_t ranks = (size_t)bounce->comm->size;
    uint64_t number = bounce->number + 1;
    struct epx_blocks out, in;

    if (bounce->under_way || !bounce->filling.full)
        return EPX_SUCCESS;
    epx_jitter();
    address_blocks(bounce);
    out = (struct epx_blocks){bounce->stage[(number + 1) % 2], bounce->counts, bounce->displs};
    in = (struct epx_blocks){bounce->stage[number % 2], bounce->counts + ranks, bounce->displs};
    EPX_TRY(bounce->host.ops->messages->alltoallv(bounce->host.state, out, in));
    bounce->number = number;
    bounce->begun++;
    bounce->under_way = 1;
    bounce->filling.claimed = bounce->filling.asked = bounce->filling.full = 0;
    memset(bounce->filling.place, 0, ranks * sizeof(*bounce->filling.place));
    memset(bounce->filling.copied, 0, ranks);
    memset(bounce->came, 0, ranks);
    bounce->came[bounce->comm->rank] = 1;
    *moved = 1;
    return EPX_SUCCESS;
}

static int copy_in(struct epx_bounce *bounce, int rank)
{
    const struct epx_exchange *exchange = bounce->exchange;
    const struct epx_message *message = &exchange->message[rank];
    const char *block = bounce->stage[bounce->number % 2] + rank * bounce->pieces.share_bytes;
    int64_t round = bounce->begun - 1;
    size_t bytes = epx_piece_bytes(&bounce->pieces, message->recv_bytes, round);
    struct header header;

    memcpy(&header, block, sizeof(header));
    EPX_FAIL_IF(header.exchange != exchange->number || header.bytes != (int64_t)bytes,
                EPX_ERR_INTERN, "rank %d sent %lld bytes in exchange %llu, not %zu in %llu", rank,
                (long long)header.bytes, (unsigned long long)header.exchange, bytes,
                (unsigned long long)exchange->number);
    if (bounce->rounds < header.rounds)
        bounce->rounds = header.rounds;
    return epx_copies_ask(&bounce->copies, EPX_COPY_IN,
                          exchange->recv + message->recv_at + round * bounce->pieces.piece_bytes,
                          block + EPX_PIECE_HEADER_BYTES, bytes);
}

static int take(struct epx_bounce *bounce, int *moved)
{
    int done;

    if (!bounce->under_way)
        return EPX_SUCCESS;
    EPX_TRY(bounce->host.ops->messages->done(bounce->host.state, &done));
    for (int r = 0; r < bounce->comm->size; r++) {
        if (bounce->came[r] || !bounce->host.ops->messages->came(bounce->host.state, r))
            continue;
        bounce->came[r] = 1;
        *moved = 1;
        note_step(bounce, r, 2 * bounce->number);
        EPX_TRY(copy_in(bounce, r));
    }
    if (!done)
        return EPX_SUCCESS;
    bounce->emptied[bounce->number % 2] = epx_copies_asked(&bounce->copies, EPX_COPY_IN);
    bounce->under_way = 0;
    *moved = 1;
    return EPX_SUCCESS;
}

int epx_bounce_queued(void *state, int *queued, int *moved)
{
    struct epx_bounce *bounce = state;
    char message[EPX_MAX_ERROR_STRING];

    *moved = 0;
    if (bounce->rounds) {
        if (bounce->host.liveness.ops->beat(bounce->host.liveness.state, 0, message))
            return epx_fail(EPX_ERR_TRANSPORT, "%s", message);
        EPX_TRY(take(bounce, moved));
        EPX_TRY(fill(bounce, moved));
        EPX_TRY(begin(bounce, moved));
        EPX_TRY(show_steps(bounce, *moved));
    }
    *queued = !bounce->under_way && bounce->begun == bounce->rounds &&
              all_made(bounce, EPX_COPY_OUT) && all_made(bounce, EPX_COPY_IN);
    return EPX_SUCCESS;
}

static int64_t count_rounds(const struct epx_bounce *bounce, const struct epx_exchange *exchange)
{
    int64_t most = 0;

    for (int r = 0; r < bounce->comm->size; r++) {
        const struct epx_message *message = &exchange->message[r];
        int64_t longer =
            message->send_bytes > message->recv_bytes ? message->send_bytes : message->recv_bytes;
        int64_t rounds = epx_pieces_rounds(&bounce->pieces, longer);

        if (r != bounce->comm->rank && rounds > most)
            most = rounds;
    }
    return most;
}

int epx_bounce_exchange(void *state, const struct epx_exchange *exchange, void *stream)
{
    struct epx_bounce *bounce = state;

    (void)stream; /* there is none */
    bounce->exchange = exchange;
    bounce->begun = 0;
    bounce->rounds = bounce->own_rounds = count_rounds(bounce, exchange);
    bounce->moved_ns = epx_now_ns();
    return EPX_SUCCESS;
}
