/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * edges_out.c - the sender's half of an edge: tells its rows, learns where they go, and stores them
 * there or puts them into the ring. alltoallv_direct.c explains the protocol.
 */
#include <string.h>

#include "coll/direct/edge_operation.h"
#include "core/verdict.h"
#include "kernels/host/row_copy.h"

static int is_short(const struct epx_edge_operation *x, int i)
{
    return x->out[i].bytes <= EPX_EDGE_PAYLOAD;
}

static const char *rows_for(const struct epx_edge_operation *x, int i)
{
    return (const char *)x->request->call.fields.at[0].in +
           epx_edge_bytes(x, x->request->call.sdispls[i]);
}

static void post_rows(const struct epx_edge_operation *x, int i, enum epx_rows_word kind)
{
    const struct epx_call *call = &x->request->call;
    const struct epx_edge_out *edge = &x->out[i];
    struct epx_rows_line *line = &edge->other->rows[x->bank];
    const int64_t bytes = edge->bytes;

    line->row_bytes = call->row_bytes;
    line->rows = call->sendcounts[i];
    line->kind = (int16_t)kind;
    line->fixed = x->fixed != NULL;
    line->known_ago = x->edges->known_ago;
    if (kind == EPX_ROWS_CARRIED && bytes)
        memcpy(epx_edge_payload(line, bytes), rows_for(x, i), (size_t)bytes);
    epx_edge_post(x, &line->number, x->destinations->rank[i]);
}

/* Whether the sender may have a grant that is still in force: then it asks for none yet. */
static int may_have_grant(const struct epx_edge_operation *x, int i)
{
    return x->fixed && x->fixed->grants[i].number;
}

/* Begins an edge, and posts its first word, unless that comes behind the rows. */
static void begin(const struct epx_edge_operation *x, int i)
{
    const struct epx_call *call = &x->request->call;
    struct epx_edge_out *edge = &x->out[i];

    edge->state = EPX_EDGE_WORD;
    edge->moved = 0;
    edge->bytes = call->sendcounts[i] * call->row_bytes;
    edge->tells_first = is_short(x, i) || !may_have_grant(x, i);
    epx_ring_begin(x->direct, x->destinations->rank[i]);
    if (edge->tells_first)
        post_rows(x, i, is_short(x, i) ? EPX_ROWS_CARRIED : EPX_ROWS_COUNTED);
}

void epx_edges_out_begin(const struct epx_edge_operation *x)
{
    int64_t bytes = 0;

    for (int i = 0; i < x->destinations->num; i++) {
        begin(x, i);
        bytes += x->out[i].bytes;
    }
    x->direct->bypasses = epx_rows_bypass(bytes);
}

/* Where in the receive buffer of a destination this rank's rows begin; NULL = it is gone. */
static char *granted(const struct epx_edge_operation *x, int i)
{
    const struct epx_grant *grant = &x->out[i].grant;
    int rank = x->destinations->rank[i];
    const struct epx_segment *segment;

    if (rank == x->direct->comm->rank)
        return (char *)x->request->call.fields.at[0].out + epx_edge_bytes(x, grant->row);
    segment = epx_segment_of_id(x->direct->comm->segments, grant->segment);
    if (!segment)
        return NULL;
    return segment->window->address[rank] + grant->offset + epx_edge_bytes(x, grant->row);
}

static int end_out(const struct epx_edge_operation *x, int i)
{
    x->out[i].state = EPX_EDGE_THROUGH;
    x->edges->through++;
    return 1;
}

/* Stores some of the rows; after the last, tells the destination that all are there. */
static int store_rows(const struct epx_edge_operation *x, int i)
{
    struct epx_edge_out *edge = &x->out[i];
    int64_t all = edge->bytes, length = all - edge->moved;
    char *to = granted(x, i);

    if (!to) {
        epx_edges_note_error(x->edges,
                             epx_fail(EPX_ERR_BUFFER, "the receive buffer of rank %d was freed",
                                      x->destinations->rank[i]));
        length = 0;
    }
    if (length > EPX_DIRECT_STRIDE)
        length = EPX_DIRECT_STRIDE;
    if (length)
        epx_row_copy(to + edge->moved, rows_for(x, i) + edge->moved, length, x->direct->bypasses);
    epx_row_copy_fence();
    edge->moved += length;
    if (to && edge->moved < all)
        return 1;
    if (edge->asked)
        epx_edge_post(x, &edge->other->arrived.number, x->destinations->rank[i]);
    else
        post_rows(x, i, EPX_ROWS_STORED);
    return end_out(x, i);
}

/* Whether the edges to the same rank that come before are through. */
static int is_turn(const struct epx_edge_operation *x, int i)
{
    const int *before = x->destinations->before;

    for (int k = before[i]; k >= 0; k = before[k])
        if (x->out[k].state != EPX_EDGE_THROUGH)
            return 0;
    return 1;
}

static int push_rows(const struct epx_edge_operation *x, int i)
{
    struct epx_edge_out *edge = &x->out[i];
    int64_t all = edge->bytes, before = edge->moved;
    int rank = x->destinations->rank[i];
    char *slot;

    if (!is_turn(x, i))
        return 0;
    while (edge->moved < all && edge->moved - before < EPX_DIRECT_STRIDE &&
           (slot = epx_ring_claim(x->direct, rank))) {
        int64_t bytes = epx_edge_piece(x, all - edge->moved);

        memcpy(slot, rows_for(x, i) + edge->moved, (size_t)bytes);
        epx_ring_push(x->direct, rank);
        epx_ring_publish(x->direct, rank);
        edge->moved += bytes;
    }
    return edge->moved == all ? end_out(x, i) : edge->moved > before;
}

/* The receiver is ready: the rows go by its last grant, if that is in force, else one is asked for,
 * unless that was done. */
static int send_rows(const struct epx_edge_operation *x, int i, uint64_t known)
{
    struct epx_edge_out *edge = &x->out[i];

    if (is_short(x, i))
        return end_out(x, i);
    edge->state = EPX_EDGE_GRANT;
    if (!may_have_grant(x, i))
        return 1;
    if (!known || x->fixed->grants[i].number != known) {
        post_rows(x, i, EPX_ROWS_COUNTED);
        return 1;
    }
    edge->grant = x->fixed->grants[i];
    edge->asked = 0;
    edge->state = EPX_EDGE_ROWS;
    if (edge->grant.row == EPX_GRANT_RING)
        post_rows(x, i, EPX_ROWS_STORED);
    return 1;
}

/* Whether a destination is ready, by its ready word or by its word on the edge back; its length of
 * a row, and the operation that its counts are known from. */
static int is_ready(const struct epx_edge_operation *x, int i, int64_t *row_bytes, uint64_t *known)
{
    const struct epx_edge_out *edge = &x->out[i];
    struct epx_ready_line *ready = &edge->own->ready[x->bank];
    struct epx_rows_line *rows;

    if (edge->back >= 0) {
        rows = &x->in[edge->back].own->rows[x->bank];
        if (epx_edge_has_come(x, &rows->number)) {
            *row_bytes = rows->row_bytes;
            *known = rows->known_ago ? x->epoch - rows->known_ago : 0;
            return 1;
        }
    }
    if (!epx_edge_has_come(x, &ready->number))
        return 0;
    *row_bytes = ready->row_bytes;
    *known = ready->known;
    return 1;
}

static int await_ready(const struct epx_edge_operation *x, int i)
{
    int64_t row_bytes = x->request->call.row_bytes, its_bytes;
    int rank = x->destinations->rank[i];
    uint64_t known;

    if (x->everyone)
        return send_rows(x, i, (uint64_t)x->direct->ready[rank].known);
    if (!is_ready(x, i, &its_bytes, &known))
        return 0;
    if (its_bytes == row_bytes)
        return send_rows(x, i, known);
    if (!is_short(x, i) && may_have_grant(x, i))
        post_rows(x, i, EPX_ROWS_COUNTED);
    epx_edges_note_error(x->edges,
                         epx_fail_edge(x->direct->comm->rank, row_bytes, rank, its_bytes));
    return end_out(x, i);
}

static int await_grant(const struct epx_edge_operation *x, int i)
{
    struct epx_edge_out *edge = &x->out[i];

    if (!epx_edge_has_come(x, &edge->own->granted.number))
        return 0;
    edge->grant = edge->own->granted.grant;
    edge->asked = 1;
    if (edge->grant.row == EPX_GRANT_NOTHING)
        return end_out(x, i);
    if (x->fixed)
        x->fixed->grants[i] = edge->grant;
    edge->state = EPX_EDGE_ROWS;
    return 1;
}

/* Moves an edge on; returns whether it got on. */
static int go_on(const struct epx_edge_operation *x, int i)
{
    switch (x->out[i].state) {
    case EPX_EDGE_WORD: return await_ready(x, i);
    case EPX_EDGE_GRANT: return await_grant(x, i);
    case EPX_EDGE_ROWS:
        return x->out[i].grant.row == EPX_GRANT_RING ? push_rows(x, i) : store_rows(x, i);
    default: return 0;
    }
}

void epx_edges_out_go_on(const struct epx_edge_operation *x, int *moved)
{
    for (int i = 0; i < x->destinations->num; i++) {
        if (x->out[i].state == EPX_EDGE_THROUGH)
            continue;
        *moved |= go_on(x, i);
        if (x->out[i].state != EPX_EDGE_THROUGH)
            x->request->waiting_for = x->destinations->rank[i];
    }
}
