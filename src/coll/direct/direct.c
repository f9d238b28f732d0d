/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct.c - ready words, flags and rings in each other's windows.
 *
 * Every rank owns a window; everything in it is written by others and read by its owner, except
 * `tails`, which tell a sender what its reader has taken.
 *
 *   ready[2][s]   writer s, reader the owner. The words of operation n go into bank n & 1, then
 *                 n into `epoch` with a release store; the reader acquires epoch >= n. Two banks
 *                 are enough: s posts n + 2 only after it finished n + 1, for which it needed the
 *                 owner's ready of n + 1, which the owner posts after it has read ready n.
 *                 Fields that an operation does not have are not written.
 *   arrived[s]    writer s: 2 n + 1, released after the last store of s into the owner's buffers
 *                 in operation n; 2 n after the last record, if n goes on with a dispatch. Grows
 *                 only; compared with >=.
 *   heads[s]      writer s: slots put into ring s since creation, released after the slots'
 *                 bytes. The owner acquires it before it reads a slot.
 *   tails[d]      writer d: slots taken from this rank's ring on d since creation, released
 *                 after the last read. The owner acquires it before it fills a slot again.
 *   counted[s]    writer s: n, after its counts of routing n, as arrived.
 *   edges         words between two ranks of an alltoallv: alltoallv_direct.c.
 *   rings[s]      writer s, under heads and tails.
 *
 * Invariant: tails <= heads <= tails + num_slots for every ring, and at the end of an operation
 * heads = tails: all that was pushed for it was popped for it. So slots may have another size in
 * each operation, counted from the operation's base. A rank posts ready n only after it finished
 * n - 1; nobody stores rows, records, weights or words of n before all ranks posted ready n. So
 * no bank or window is written while its owner may still read what was there.
 *
 * A rank without weights, rows or experts posts the same words, and so does every rank before an
 * operation that is bound to fail: no wait depends on data, and the banks' argument has no
 * exception.
 *
 * tests/model/direct.pml and direct_rings.pml check this.
 */
#include "coll/direct/direct.h"

#include <stdlib.h>

#include "base/flags.h"
#include "base/jitter.h"
#include "core/agree.h"
#include "core/route.h"

struct ready_line {
    _Alignas(EPX_LINE_BYTES) _Atomic uint64_t epoch;
    struct epx_ready words;
};

struct flag_line {
    _Alignas(EPX_LINE_BYTES) _Atomic uint64_t flag;
};

enum line_kind { LINE_ARRIVED, LINE_COUNTED, LINE_HEAD, LINE_TAIL, NUM_LINES };

static struct ready_line *ready_line(const struct epx_direct *direct, int owner, int writer,
                                     uint64_t epoch)
{
    struct ready_line *lines = (struct ready_line *)(void *)direct->window->address[owner];

    return &lines[(epoch & 1) * (uint64_t)direct->comm->size + (uint64_t)writer];
}

static struct flag_line *flag_line(const struct epx_direct *direct, int owner, int writer, int kind)
{
    size_t ranks = (size_t)direct->comm->size;
    char *lines = direct->window->address[owner] + 2 * ranks * sizeof(struct ready_line);

    return (struct flag_line *)(void *)lines + (size_t)kind * ranks + (size_t)writer;
}

static size_t flags_bytes(int num_ranks)
{
    return (size_t)num_ranks *
           (2 * sizeof(struct ready_line) + NUM_LINES * sizeof(struct flag_line));
}

size_t epx_direct_end(const struct epx_direct *direct)
{
    return flags_bytes(direct->comm->size) + (size_t)(direct->comm->size * direct->ring_bytes);
}

static char *ring(const struct epx_direct *direct, int owner, int writer)
{
    return direct->window->address[owner] + flags_bytes(direct->comm->size) +
           writer * direct->ring_bytes;
}

/* Bytes of one ring: room for two slots at least, of one quantum each. */
static int64_t ring_bytes(const struct epx_comm *comm)
{
    int64_t share = comm->params.window_bytes / comm->size / EPX_LINE_BYTES * EPX_LINE_BYTES;

    return share < 2 * EPX_SEGMENT_QUANTUM ? 2 * EPX_SEGMENT_QUANTUM : share;
}

static int init(struct epx_direct *direct)
{
    struct epx_arrays *all = &direct->arrays;
    struct epx_comm *comm = direct->comm;
    int64_t ranks = comm->size;

    EPX_ARRAY(all, direct->ready, ranks);
    EPX_ARRAY(all, direct->to, ranks);
    EPX_ARRAY(all, direct->from, ranks);
    EPX_ARRAY(all, direct->pushed, ranks);
    EPX_ARRAY(all, direct->popped, ranks);
    EPX_ARRAY(all, direct->push_base, ranks);
    EPX_ARRAY(all, direct->pop_base, ranks);
    EPX_ARRAY(all, direct->buffers, ranks);
    EPX_ARRAY(all, direct->sums, ranks * EPX_MAX_TOP_K);
    EPX_FAIL_IF(all->failed, EPX_ERR_NO_MEM, "no memory for %d ranks", comm->size);
    direct->ring_bytes = ring_bytes(comm);
    return EPX_SUCCESS;
}

int epx_direct_create(struct epx_transport *transport, size_t more_bytes)
{
    struct epx_comm *comm = transport->comm;
    struct epx_direct *direct = epx_memory_zeroed(1, sizeof(*direct));
    int rc = direct ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for the direct algorithm");

    transport->direct = direct;
    if (direct) {
        direct->comm = comm;
        rc = init(direct);
    }
    EPX_TRY(epx_comm_agree(comm, rc));
    EPX_TRY(epx_transport_window_create(transport, epx_direct_end(direct) + more_bytes,
                                        &direct->window));
    epx_poison(ring(direct, comm->rank, 0), (size_t)(comm->size * direct->ring_bytes));
    return EPX_SUCCESS;
}

void epx_direct_free(struct epx_transport *transport)
{
    struct epx_direct *direct = transport->direct;

    if (!direct)
        return;
    epx_transport_window_free(transport, direct->window);
    epx_arrays_free(&direct->arrays);
    free(direct);
    transport->direct = NULL;
}

struct epx_direct *epx_direct_of(const struct epx_request *request)
{
    return epx_transport_of(request)->direct;
}

static void post_ready(struct epx_direct *direct, const struct epx_request *request)
{
    struct epx_ready ready = epx_ready_of(request);
    size_t bytes = epx_ready_bytes(ready.num_fields);

    for (int r = 0; r < direct->comm->size; r++) {
        struct ready_line *line = ready_line(direct, r, direct->comm->rank, request->epoch);

        memcpy(&line->words, &ready, bytes);
        epx_flag_post(&line->epoch, request->epoch);
        epx_direct_count(direct, r);
    }
}

/* Reads the ready words of all ranks; returns the first rank that has not posted them, or -1. */
static int ready_lacks(struct epx_direct *direct, const struct epx_request *request)
{
    for (int r = 0; r < direct->comm->size; r++) {
        struct ready_line *line = ready_line(direct, direct->comm->rank, r, request->epoch);

        if (epx_flag_look(&line->epoch) < request->epoch)
            return r;
        memcpy(&direct->ready[r], &line->words, epx_ready_bytes(line->words.num_fields));
    }
    return -1;
}

int epx_direct_lacks(const struct epx_request *request, int rank)
{
    const struct epx_direct *direct = epx_direct_of(request);

    if (request->phase != EPX_PHASE_AGREE)
        return rank == request->waiting_for;
    return epx_flag_look(&ready_line(direct, direct->comm->rank, rank, request->epoch)->epoch) <
           request->epoch;
}

int epx_direct_handshake(struct epx_request *request, int *weighted, int *moved)
{
    struct epx_direct *direct = epx_direct_of(request);

    if (epx_ready_skip(request, weighted, moved))
        return EPX_SUCCESS;
    if (request->phase == EPX_PHASE_POST) {
        post_ready(direct, request);
        request->phase = EPX_PHASE_AGREE;
    }
    request->waiting_for = ready_lacks(direct, request);
    if (request->waiting_for >= 0)
        return EPX_SUCCESS;
    *moved = 1;
    request->phase = EPX_PHASE_VERB;
    return epx_ready_agree(request, direct->ready, weighted);
}

void epx_direct_begin(struct epx_direct *direct, int64_t row_bytes)
{
    size_t ranks = (size_t)direct->comm->size;

    direct->cut = epx_segments_cut(row_bytes, direct->ring_bytes / 2);
    direct->slot_bytes = epx_round_up(direct->cut.bytes ? direct->cut.bytes : 1, EPX_LINE_BYTES);
    direct->num_slots = direct->ring_bytes / direct->slot_bytes;
    memset(direct->to, 0, ranks * sizeof(*direct->to));
    memset(direct->from, 0, ranks * sizeof(*direct->from));
    memcpy(direct->push_base, direct->pushed, ranks * sizeof(*direct->pushed));
    memcpy(direct->pop_base, direct->popped, ranks * sizeof(*direct->popped));
    direct->token = direct->token_segment = 0;
}

void epx_direct_begin_bytes(struct epx_direct *direct)
{
    int64_t half = direct->ring_bytes / 2 / EPX_LINE_BYTES * EPX_LINE_BYTES;

    direct->slot_bytes = half < EPX_DIRECT_PIECE ? half : EPX_DIRECT_PIECE;
    direct->num_slots = direct->ring_bytes / direct->slot_bytes;
}

/* The number of the stores under way in `arrived`. */
static uint64_t arrival(const struct epx_request *request)
{
    return 2 * request->epoch + (request->half != EPX_HALF_ROUTING);
}

void epx_direct_post_arrival(struct epx_direct *direct, const struct epx_request *request, int rank)
{
    epx_flag_post(&flag_line(direct, rank, direct->comm->rank, LINE_ARRIVED)->flag,
                  arrival(request));
    epx_direct_count(direct, rank);
}

int epx_direct_arrived(const struct epx_direct *direct, const struct epx_request *request, int rank)
{
    return epx_flag_look(&flag_line(direct, direct->comm->rank, rank, LINE_ARRIVED)->flag) >=
           arrival(request);
}

void epx_direct_post_counted(struct epx_direct *direct, const struct epx_request *request, int rank)
{
    epx_flag_post(&flag_line(direct, rank, direct->comm->rank, LINE_COUNTED)->flag, request->epoch);
    epx_direct_count(direct, rank);
}

int epx_direct_counted(const struct epx_direct *direct, const struct epx_request *request, int rank)
{
    return epx_flag_look(&flag_line(direct, direct->comm->rank, rank, LINE_COUNTED)->flag) >=
           request->epoch;
}

char *epx_ring_claim(struct epx_direct *direct, int rank)
{
    int me = direct->comm->rank;
    uint64_t taken = epx_flag_look(&flag_line(direct, me, rank, LINE_TAIL)->flag);
    uint64_t place = direct->pushed[rank] - direct->push_base[rank];

    if (direct->pushed[rank] - taken >= (uint64_t)direct->num_slots)
        return NULL;
    return ring(direct, rank, me) +
           (int64_t)(place % (uint64_t)direct->num_slots) * direct->slot_bytes;
}

void epx_ring_push(struct epx_direct *direct, int rank)
{
    direct->pushed[rank]++;
}

void epx_ring_publish(struct epx_direct *direct, int rank)
{
    epx_flag_post(&flag_line(direct, rank, direct->comm->rank, LINE_HEAD)->flag,
                  direct->pushed[rank]);
    epx_direct_count(direct, rank);
}

/* The slot to be popped next from the ring that `rank` fills. */
static char *next_slot(const struct epx_direct *direct, int rank)
{
    uint64_t place = direct->popped[rank] - direct->pop_base[rank];

    return ring(direct, direct->comm->rank, rank) +
           (int64_t)(place % (uint64_t)direct->num_slots) * direct->slot_bytes;
}

const char *epx_ring_peek(const struct epx_direct *direct, int rank)
{
    uint64_t put = epx_flag_look(&flag_line(direct, direct->comm->rank, rank, LINE_HEAD)->flag);

    return put == direct->popped[rank] ? NULL : next_slot(direct, rank);
}

void epx_ring_pop(struct epx_direct *direct, int rank)
{
    epx_poison(next_slot(direct, rank), (size_t)direct->slot_bytes);
    direct->popped[rank]++;
}

void epx_ring_release(struct epx_direct *direct, int rank)
{
    epx_flag_post(&flag_line(direct, rank, direct->comm->rank, LINE_TAIL)->flag,
                  direct->popped[rank]);
    epx_direct_count(direct, rank);
}

void epx_cursor_step(struct epx_cursor *cursor, struct epx_segments cut)
{
    if (++cursor->segment == cut.num) {
        cursor->segment = 0;
        cursor->row++;
    }
}
