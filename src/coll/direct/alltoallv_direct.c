/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * alltoallv_direct.c - every sender tells each receiver its count; a receiver that knows all counts
 * grants each sender the row at which to store (its buffer is window memory), its ring, or nothing
 * (its buffer is too small). A rank copies its rows for itself straight into its buffer.
 */
#include "coll/alltoallv.h"
#include "coll/direct/direct.h"
#include "coll/verbs.h"

enum { AWAIT_COUNTS = EPX_PHASE_VERB, AWAIT_GRANTS, MOVE };
enum { GRANT_RING = -1, GRANT_NOTHING = -2 };
enum { STORED_ALL = -1 };

static int64_t rows_bytes(const struct epx_request *request, int64_t rows)
{
    return rows * request->call.row_bytes;
}

/* Whether others store straight into this rank's receive buffer: window memory, or nothing, if rows
 * have no bytes. Else their rows come by the ring. */
static int takes_stores(const struct epx_direct *direct, const struct epx_request *request)
{
    return direct->ready[direct->comm->rank].fields[0].segment >= 0 || !request->call.row_bytes;
}

static int begin(struct epx_direct *direct, struct epx_request *request, int *moved)
{
    int64_t bytes = 0;
    int weighted;

    if (request->phase == EPX_PHASE_POST)
        epx_alltoallv_copy_counts(request, direct->counts);
    EPX_TRY(epx_direct_handshake(request, &weighted, moved));
    if (!*moved)
        return EPX_SUCCESS;
    epx_direct_begin(direct, request->call.row_bytes);
    for (int r = 0; r < direct->comm->size; r++) {
        bytes += rows_bytes(request, request->call.sendcounts[r]);
        epx_direct_post_word(direct, request, r, EPX_WORD_COUNT, request->call.sendcounts[r]);
    }
    direct->bypasses = epx_rows_bypass(bytes);
    return EPX_SUCCESS;
}

/* Reads one word of every rank; returns the first rank whose word has not come, or -1. */
static int words_lack(const struct epx_direct *direct, const struct epx_request *request,
                      enum epx_word word, int64_t *values)
{
    for (int r = 0; r < direct->comm->size; r++)
        if (!epx_direct_read_word(direct, request, r, word, &values[r]))
            return r;
    return -1;
}

static void grant(struct epx_direct *direct, struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    int fits = epx_alltoallv_place(request);

    direct->refuses = !fits;
    for (int r = 0; r < direct->comm->size; r++) {
        int stores = r == direct->comm->rank || takes_stores(direct, request);

        epx_direct_post_word(direct, request, r, EPX_WORD_GRANT,
                             !fits    ? GRANT_NOTHING
                             : stores ? call->rdispls[r]
                                      : GRANT_RING);
    }
    request->phase = AWAIT_GRANTS;
}

/* Where in the receive buffer of `rank` this rank's rows begin. */
static char *granted(const struct epx_direct *direct, const struct epx_request *request, int rank)
{
    const struct epx_ready_field *told = &direct->ready[rank].fields[0];
    const struct epx_segment *segment;
    char *buffer = request->call.fields.at[0].out;

    if (rank != direct->comm->rank) {
        segment = epx_segment_of_id(direct->comm->segments, told->segment);
        buffer = segment->window->address[rank] + told->offset;
    }
    return buffer + direct->grants[rank] * request->call.row_bytes;
}

static const char *rows_for(const struct epx_request *request, int rank)
{
    return (const char *)request->call.fields.at[0].in +
           rows_bytes(request, request->call.sdispls[rank]);
}

/* Stores some of the rows for a rank; after the last, tells that rank that all are there. */
static int store_rows(struct epx_direct *direct, const struct epx_request *request, int rank)
{
    int64_t all = rows_bytes(request, request->call.sendcounts[rank]);
    int64_t from = direct->stored[rank], length = all - from;

    if (from == STORED_ALL)
        return 0;
    if (length > EPX_DIRECT_STRIDE)
        length = EPX_DIRECT_STRIDE;
    if (length)
        epx_row_copy(granted(direct, request, rank) + from, rows_for(request, rank) + from, length,
                     direct->bypasses);
    epx_row_copy_fence();
    direct->stored[rank] = from + length < all ? from + length : STORED_ALL;
    if (direct->stored[rank] == STORED_ALL)
        epx_direct_post_arrival(direct, request, rank);
    return 1;
}

static int push_rows(struct epx_direct *direct, const struct epx_request *request, int rank)
{
    struct epx_cursor *to = &direct->to[rank];
    int64_t pushed = 0;
    char *slot;

    while (to->row < request->call.sendcounts[rank] && pushed < EPX_DIRECT_STRIDE &&
           (slot = epx_ring_claim(direct, rank))) {
        int64_t bytes = epx_segment_length(direct->cut, to->segment);

        memcpy(slot,
               rows_for(request, rank) + rows_bytes(request, to->row) +
                   epx_segment_offset(direct->cut, to->segment),
               (size_t)bytes);
        epx_ring_push(direct, rank);
        pushed += direct->slot_bytes;
        epx_cursor_step(to, direct->cut);
    }
    if (pushed)
        epx_ring_publish(direct, rank);
    return pushed > 0;
}

static int send_rows(struct epx_direct *direct, const struct epx_request *request, int rank,
                     int *moved)
{
    int64_t rows = request->call.sendcounts[rank];

    if (direct->grants[rank] == GRANT_NOTHING)
        return 1;
    if (direct->grants[rank] == GRANT_RING) {
        *moved |= push_rows(direct, request, rank);
        return direct->to[rank].row == rows;
    }
    *moved |= store_rows(direct, request, rank);
    return direct->stored[rank] == STORED_ALL;
}

static int pop_rows(struct epx_direct *direct, const struct epx_request *request, int source)
{
    const struct epx_call *call = &request->call;
    struct epx_cursor *from = &direct->from[source];
    int64_t popped = 0;
    const char *slot;

    while (from->row < call->recvcounts[source] && popped < EPX_DIRECT_STRIDE &&
           (slot = epx_ring_peek(direct, source))) {
        int64_t bytes = epx_segment_length(direct->cut, from->segment);

        memcpy((char *)call->fields.at[0].out +
                   rows_bytes(request, call->rdispls[source] + from->row) +
                   epx_segment_offset(direct->cut, from->segment),
               slot, (size_t)bytes);
        epx_ring_pop(direct, source);
        popped += direct->slot_bytes;
        epx_cursor_step(from, direct->cut);
    }
    if (popped)
        epx_ring_release(direct, source);
    return popped > 0;
}

static int receive_rows(struct epx_direct *direct, const struct epx_request *request, int source,
                        int *moved)
{
    if (direct->refuses)
        return 1;
    if (source == direct->comm->rank || takes_stores(direct, request))
        return epx_direct_arrived(direct, request, source);
    *moved |= pop_rows(direct, request, source);
    return direct->from[source].row == request->call.recvcounts[source];
}

static int move(struct epx_direct *direct, struct epx_request *request, int *moved)
{
    int through = 1;

    for (int r = 0; r < direct->comm->size; r++) {
        int sent = send_rows(direct, request, r, moved);

        if (!receive_rows(direct, request, r, moved) || !sent) {
            through = 0;
            request->waiting_for = r;
        }
    }
    return through ? epx_alltoallv_finish(request) : EPX_SUCCESS;
}

int epx_alltoallv_direct(struct epx_request *request, int *moved)
{
    struct epx_direct *direct = epx_direct_of(request);

    switch (request->phase) {
    case AWAIT_COUNTS:
        request->waiting_for =
            words_lack(direct, request, EPX_WORD_COUNT, request->call.recvcounts);
        *moved = request->waiting_for < 0;
        if (*moved)
            grant(direct, request);
        return EPX_SUCCESS;
    case AWAIT_GRANTS:
        request->waiting_for = words_lack(direct, request, EPX_WORD_GRANT, direct->grants);
        *moved = request->waiting_for < 0;
        if (*moved)
            request->phase = MOVE;
        return EPX_SUCCESS;
    case MOVE: return move(direct, request, moved);
    default: return begin(direct, request, moved);
    }
}
