/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * edges_in.c - the receiver's half of an edge: says that it is ready, grants the sender a place,
 * and takes rows from words and from the ring. alltoallv_direct.c explains the protocol.
 */
#include <string.h>

#include "coll/direct/edge_operation.h"
#include "core/verdict.h"

static void post_ready(const struct epx_edge_operation *x, int i)
{
    struct epx_ready_line *line = &x->in[i].other->ready[x->bank];

    line->row_bytes = x->request->call.row_bytes;
    line->known = x->edges->known;
    epx_edge_post(x, &line->number, x->sources->rank[i]);
}

/* Whether the source of an edge is told by the word of the edge back that this rank is ready. */
static int rows_tell_ready(const struct epx_edge_operation *x, int back)
{
    return back >= 0 && x->out[back].tells_first && (!x->edges->known || x->edges->known_ago);
}

static void begin(const struct epx_edge_operation *x, int i)
{
    struct epx_edge_in *edge = &x->in[i];

    edge->state = EPX_EDGE_WORD;
    edge->moved = 0;
    epx_ring_begin(x->direct, x->sources->rank[i]);
    if (!x->everyone && !rows_tell_ready(x, edge->back))
        post_ready(x, i);
}

void epx_edges_in_begin(const struct epx_edge_operation *x)
{
    for (int i = 0; i < x->sources->num; i++)
        begin(x, i);
}

int epx_edges_in_lack(const struct epx_edge_operation *x)
{
    for (int i = 0; i < x->sources->num; i++) {
        struct epx_rows_line *line = &x->in[i].own->rows[x->bank];

        if (!epx_edge_has_come(x, &line->number))
            return x->sources->rank[i];
        x->request->call.recvcounts[i] = line->rows;
    }
    return -1;
}

void epx_edges_in_agree(const struct epx_edge_operation *x, int *fixed)
{
    int64_t row_bytes = x->request->call.row_bytes;

    *fixed = x->fixed != NULL;
    for (int i = 0; i < x->sources->num; i++) {
        const struct epx_rows_line *line = &x->in[i].own->rows[x->bank];

        *fixed &= line->fixed;
        if (line->row_bytes == row_bytes)
            continue;
        epx_edges_note_error(x->edges, epx_fail_edge(x->sources->rank[i], line->row_bytes,
                                                     x->direct->comm->rank, row_bytes));
        x->edges->refuses = 1;
    }
}

/* Whether others store straight into this rank's receive buffer: window memory. Else their rows
 * come by the ring. */
static int takes_stores(const struct epx_edge_operation *x, int i,
                        const struct epx_segment **segment, int64_t *offset)
{
    const struct epx_call *call = &x->request->call;

    *segment = epx_segment_find(x->request->comm->segments, call->fields.at[0].out,
                                (size_t)epx_edge_bytes(x, call->recv_capacity), offset);
    if (*segment && !(*segment)->reachable)
        *segment = NULL;
    return *segment || x->sources->rank[i] == x->direct->comm->rank;
}

static int comes_by_ring(const struct epx_edge_operation *x, int i)
{
    const struct epx_segment *segment;
    int64_t offset;

    return !takes_stores(x, i, &segment, &offset);
}

/* Returns whether rows will come. */
static int post_grant(const struct epx_edge_operation *x, int i, int refuses)
{
    struct epx_tail_lines *lines = x->in[i].other;
    struct epx_grant grant = {.number = x->fixed ? x->fixed->known : 0, .row = EPX_GRANT_NOTHING};
    const struct epx_segment *segment;

    if (!refuses && takes_stores(x, i, &segment, &grant.offset)) {
        grant.row = x->request->call.rdispls[i];
        grant.segment = segment ? segment->id : -1;
    } else if (!refuses) {
        grant.row = EPX_GRANT_RING;
    }
    lines->granted.grant = grant;
    epx_edge_post(x, &lines->granted.number, x->sources->rank[i]);
    return !refuses;
}

static int end_in(const struct epx_edge_operation *x, int i)
{
    x->in[i].state = EPX_EDGE_THROUGH;
    x->edges->through++;
    return 1;
}

/* Whether the edges from the same rank that come before are through. */
static int is_turn(const struct epx_edge_operation *x, int i)
{
    const int *before = x->sources->before;

    for (int k = before[i]; k >= 0; k = before[k])
        if (x->in[k].state != EPX_EDGE_THROUGH)
            return 0;
    return 1;
}

static int pop_rows(const struct epx_edge_operation *x, int i)
{
    const struct epx_call *call = &x->request->call;
    struct epx_edge_in *edge = &x->in[i];
    int64_t all = epx_edge_bytes(x, call->recvcounts[i]), before = edge->moved;
    char *to = (char *)call->fields.at[0].out + epx_edge_bytes(x, call->rdispls[i]);
    int rank = x->sources->rank[i];
    const char *slot;

    if (!is_turn(x, i))
        return 0;
    while (edge->moved < all && edge->moved - before < EPX_DIRECT_STRIDE &&
           (slot = epx_ring_peek(x->direct, rank))) {
        int64_t bytes = epx_edge_piece(x, all - edge->moved);

        memcpy(to + edge->moved, slot, (size_t)bytes);
        epx_ring_pop(x->direct, rank);
        epx_ring_release(x->direct, rank);
        edge->moved += bytes;
    }
    return edge->moved == all ? end_in(x, i) : edge->moved > before;
}

/* Whether rows of an edge can be taken: as many as were told, of the length that was told. */
static int check_word(const struct epx_edge_operation *x, int i, const struct epx_rows_line *line)
{
    const struct epx_call *call = &x->request->call;

    if (!x->edges->known)
        return !x->edges->refuses; /* epx_edges_in_agree has checked them */
    if (line->row_bytes != call->row_bytes)
        epx_edges_note_error(x->edges, epx_fail_edge(x->sources->rank[i], line->row_bytes,
                                                     x->direct->comm->rank, call->row_bytes));
    else if (line->rows != call->recvcounts[i])
        epx_edges_note_error(x->edges,
                             epx_fail_fixed(x->sources->rank[i], line->rows, call->recvcounts[i]));
    else
        return 1;
    return 0;
}

static void take_carried(const struct epx_edge_operation *x, int i, struct epx_rows_line *line)
{
    const struct epx_call *call = &x->request->call;
    const int64_t bytes = epx_edge_bytes(x, line->rows);

    if (bytes)
        memcpy((char *)call->fields.at[0].out + epx_edge_bytes(x, call->rdispls[i]),
               epx_edge_payload(line, bytes), (size_t)bytes);
}

static int await_rows_word(const struct epx_edge_operation *x, int i)
{
    struct epx_edge_in *edge = &x->in[i];
    struct epx_rows_line *line = &edge->own->rows[x->bank];
    int takes, more = 0;

    if (!epx_edge_has_come(x, &line->number))
        return 0;
    takes = check_word(x, i, line);
    if (line->kind == EPX_ROWS_COUNTED)
        more = post_grant(x, i, !takes);
    else if (takes && line->kind == EPX_ROWS_CARRIED)
        take_carried(x, i, line);
    else if (takes)
        more = comes_by_ring(x, i);
    if (!more)
        return end_in(x, i);
    edge->state = EPX_EDGE_ROWS;
    return 1;
}

static int take_rows(const struct epx_edge_operation *x, int i)
{
    if (comes_by_ring(x, i))
        return pop_rows(x, i);
    return epx_edge_has_come(x, &x->in[i].own->arrived.number) ? end_in(x, i) : 0;
}

/* Moves an edge on; returns whether it got on. */
static int go_on(const struct epx_edge_operation *x, int i)
{
    switch (x->in[i].state) {
    case EPX_EDGE_WORD: return await_rows_word(x, i);
    case EPX_EDGE_ROWS: return take_rows(x, i);
    default: return 0;
    }
}

void epx_edges_in_go_on(const struct epx_edge_operation *x, int *moved)
{
    for (int i = 0; i < x->sources->num; i++) {
        if (x->in[i].state == EPX_EDGE_THROUGH)
            continue;
        *moved |= go_on(x, i);
        if (x->in[i].state != EPX_EDGE_THROUGH)
            x->request->waiting_for = x->sources->rank[i];
    }
}
