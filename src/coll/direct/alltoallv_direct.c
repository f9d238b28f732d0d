/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * alltoallv_direct.c - rows along edges: those between all ranks, or those of a graph.
 *
 * The two ranks of an edge have words in each other's windows (edges.h). n is the number of the
 * operation, counted for a graph, or for the operations that all ranks take part in:
 *
 *   ready[n & 1]   writer the receiver, first in n: its length of a row, and whether its last grant
 *                  is still in force. The ranks of the communicator have ready words of their own
 *                  (direct.c) instead.
 *   rows[n & 1]    writer the sender: its length of a row, the number of rows, and the rows if they
 *                  are short. Or it comes behind the rows, if the last grant was in force.
 *   granted        writer the receiver, once it knows the rows of all sources: where the rows go.
 *   arrived        writer the sender, behind its last store.
 *
 * Each word has n, released after all else. A receiver with short rows alone, or with fixed counts,
 * waits for one word a source, a sender for one word a destination.
 *
 * Where an edge goes back, from the receiver to the sender, the receiver's word rows on that one
 * says what ready would. So it posts no ready if it posts that word first in n, and the sender
 * takes whichever has come. With short rows there is one word an edge then.
 *
 * No word is overwritten before it was read. Rows: its writer posts n + 2 after it finished n + 1,
 * for which it had a word of the receiver, ready or rows of n + 1, and the receiver wrote that
 * after it finished n, for which it had read rows n. Ready: its writer posts n + 2 after it
 * finished n + 1, for which it had the sender's word rows[n + 1], and the sender wrote that after
 * it finished n, when it needed ready n no more. Granted: the receiver posts one only after a word
 * rows that asks for it, before which the sender finished the last operation with a grant. Arrived:
 * the sender posts it only after a grant of the same operation, before which the receiver finished
 * the last one with rows.
 *
 * Rings belong to pairs of ranks (direct.c). Two edges of one pair take turns in their order. No
 * byte is put into a ring before the receiver said in the same operation that it may be.
 *
 * A grant stays in force for a request of the sender and one of the receiver that have met. The
 * receiver's is known by the number of the operation in which it learned the rows of its sources,
 * which all must be fixed: from then on its places stay. It tells that number in its grants, which
 * the sender keeps, and when it is ready, and only if the two are the same do rows go by the grant:
 * else they are for another request's buffer. A grant of a request that has learned nothing has the
 * number 0 and is not kept.
 *
 * tests/model/edges.pml checks the words, tests/model/grants.pml the grants in force.
 */
#include <string.h>

#include "base/flags.h"
#include "coll/direct/edges.h"
#include "coll/verbs.h"
#include "core/verdict.h"
#include "kernels/host/row_copy.h"

enum { AWAIT_WORDS = EPX_PHASE_VERB, MOVE };

/* An operation on the edges of its graph. */
struct exchange {
    struct epx_direct *direct;
    struct epx_request *request;
    struct epx_edges *edges;
    struct epx_edge_in *in;
    struct epx_edge_out *out;
    const struct epx_ends *sources, *destinations;
    struct epx_fixed *fixed;
    uint64_t epoch; /* n */
    int everyone;   /* the edges are those between all ranks */
    int bank;       /* of words that have two */
};

static struct exchange exchange_of(struct epx_request *request)
{
    struct epx_graph *graph = request->call.graph;
    struct epx_direct *direct = epx_direct_of(request);
    struct epx_edges *edges = graph->everyone ? direct->everyone : graph->edges;

    return (struct exchange){.direct = direct,
                             .request = request,
                             .edges = edges,
                             .in = edges->in,
                             .out = edges->out,
                             .sources = &graph->sources,
                             .destinations = &graph->destinations,
                             .fixed = epx_alltoallv_fixed(request),
                             .epoch = request->epoch,
                             .everyone = graph->everyone,
                             .bank = (int)(request->epoch & 1)};
}

static int64_t bytes_of(const struct exchange *x, int64_t rows)
{
    return rows * x->request->call.row_bytes;
}

/* Whether a word of this operation is there. */
static int has_come(const struct exchange *x, _Atomic uint64_t *number)
{
    return epx_flag_look(number) == x->epoch;
}

static void post(const struct exchange *x, _Atomic uint64_t *number, int rank)
{
    epx_flag_post(number, x->epoch);
    epx_direct_count(x->direct, rank);
}

/* The first error of an edge is that of the operation; the other edges go on. */
static void note_error(const struct exchange *x, int error)
{
    if (x->edges->error)
        return;
    x->edges->error = error;
    memcpy(x->edges->message, epx_status_message(), sizeof(x->edges->message));
}

static int is_short(const struct exchange *x, int i)
{
    return x->out[i].bytes <= EPX_EDGE_PAYLOAD;
}

static const char *rows_for(const struct exchange *x, int i)
{
    return (const char *)x->request->call.fields.at[0].in +
           bytes_of(x, x->request->call.sdispls[i]);
}

/* Where a word carries rows. */
static char *payload_of(struct epx_rows_line *line, int64_t bytes)
{
    return bytes <= EPX_EDGE_FEW ? line->few : line->payload;
}

static void post_rows(const struct exchange *x, int i, enum epx_rows_word kind)
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
        memcpy(payload_of(line, bytes), rows_for(x, i), (size_t)bytes);
    post(x, &line->number, x->destinations->rank[i]);
}

static void post_ready(const struct exchange *x, int i)
{
    struct epx_ready_line *line = &x->in[i].other->ready[x->bank];

    line->row_bytes = x->request->call.row_bytes;
    line->known = x->edges->known;
    post(x, &line->number, x->sources->rank[i]);
}

/* Whether the sender may have a grant that is still in force: then it asks for none yet. */
static int may_have_grant(const struct exchange *x, int i)
{
    return x->fixed && x->fixed->grants[i].number;
}

/* Whether the word rows is the first that goes along an edge. */
static int rows_come_first(const struct exchange *x, int i)
{
    return is_short(x, i) || !may_have_grant(x, i);
}

/* Whether the source of an edge is told by the word of the edge back that this rank is ready. */
static int rows_tell_ready(const struct exchange *x, int back)
{
    return back >= 0 && rows_come_first(x, back) && (!x->edges->known || x->edges->known_ago);
}

/* Begins an edge to a destination, and posts its first word, unless that comes behind the rows. */
static void begin_out(const struct exchange *x, int i)
{
    const struct epx_call *call = &x->request->call;
    struct epx_edge_out *edge = &x->out[i];

    edge->state = EPX_EDGE_WORD;
    edge->moved = 0;
    edge->bytes = call->sendcounts[i] * call->row_bytes;
    epx_ring_begin(x->direct, x->destinations->rank[i]);
    if (is_short(x, i))
        post_rows(x, i, EPX_ROWS_CARRIED);
    else if (rows_come_first(x, i))
        post_rows(x, i, EPX_ROWS_COUNTED);
}

static void begin_in(const struct exchange *x, int i)
{
    struct epx_edge_in *edge = &x->in[i];

    edge->state = EPX_EDGE_WORD;
    edge->moved = 0;
    epx_ring_begin(x->direct, x->sources->rank[i]);
    if (!x->everyone && !rows_tell_ready(x, edge->back))
        post_ready(x, i);
}

/* Begins all edges, those to destinations first: they wait for the words. A number of operations
 * that is too large for a word is told by a ready word. */
static void begin_edges(const struct exchange *x)
{
    struct epx_edges *edges = x->edges;
    const uint64_t known = x->fixed ? x->fixed->known : 0;
    const uint64_t ago = known ? x->epoch - known : 0;
    int64_t bytes = 0;

    edges->through = edges->refuses = 0;
    edges->error = EPX_SUCCESS;
    edges->known = known;
    edges->known_ago = ago <= UINT32_MAX ? (uint32_t)ago : 0;
    for (int i = 0; i < x->destinations->num; i++) {
        begin_out(x, i);
        bytes += x->out[i].bytes;
    }
    for (int i = 0; i < x->sources->num; i++)
        begin_in(x, i);
    x->direct->bypasses = epx_rows_bypass(bytes);
}

/* Reads the rows of all sources; returns the first rank whose word has not come, or -1. */
static int words_lack(const struct exchange *x)
{
    for (int i = 0; i < x->sources->num; i++) {
        struct epx_rows_line *line = &x->in[i].own->rows[x->bank];

        if (!has_come(x, &line->number))
            return x->sources->rank[i];
        x->request->call.recvcounts[i] = line->rows;
    }
    return -1;
}

/* The sources that were not known before: whether they agree, and whether all are fixed. */
static void look_at_words(const struct exchange *x, int *fixed)
{
    int64_t row_bytes = x->request->call.row_bytes;

    *fixed = x->fixed != NULL;
    for (int i = 0; i < x->sources->num; i++) {
        const struct epx_rows_line *line = &x->in[i].own->rows[x->bank];

        *fixed &= line->fixed;
        if (line->row_bytes == row_bytes)
            continue;
        note_error(x, epx_fail_edge(x->sources->rank[i], line->row_bytes, x->direct->comm->rank,
                                    row_bytes));
        x->edges->refuses = 1;
    }
}

/* Finds where rows go, from the words of all sources, or from what is known of them. */
static void place(const struct exchange *x)
{
    int fixed = 0;

    if (x->edges->known)
        x->request->call.recvcounts = x->fixed->rows;
    else
        look_at_words(x, &fixed);
    x->edges->refuses |= !epx_alltoallv_place(x->request);
    if (fixed && !x->edges->refuses)
        epx_alltoallv_learn(x->request);
    x->request->phase = MOVE;
}

static int begin(const struct exchange *x, int *moved)
{
    struct epx_request *request = x->request;
    int weighted;

    if (request->phase == EPX_PHASE_POST) {
        epx_alltoallv_copy_counts(request, x->edges->counts);
        epx_direct_begin_bytes(x->direct);
        begin_edges(x);
    }
    if (x->everyone) {
        EPX_TRY(epx_direct_handshake(request, &weighted, moved));
        if (!*moved)
            return EPX_SUCCESS;
    }
    *moved = 1;
    request->phase = AWAIT_WORDS;
    if (x->edges->known)
        place(x);
    return EPX_SUCCESS;
}

/* Whether others store straight into this rank's receive buffer: window memory. Else their rows
 * come by the ring. */
static int takes_stores(const struct exchange *x, int i, const struct epx_segment **segment,
                        int64_t *offset)
{
    const struct epx_call *call = &x->request->call;

    *segment = epx_segment_find(x->request->comm->segments, call->fields.at[0].out,
                                (size_t)bytes_of(x, call->recv_capacity), offset);
    if (*segment && !(*segment)->reachable)
        *segment = NULL;
    return *segment || x->sources->rank[i] == x->direct->comm->rank;
}

static int comes_by_ring(const struct exchange *x, int i)
{
    const struct epx_segment *segment;
    int64_t offset;

    return !takes_stores(x, i, &segment, &offset);
}

/* Returns whether rows will come. */
static int post_grant(const struct exchange *x, int i, int refuses)
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
    post(x, &lines->granted.number, x->sources->rank[i]);
    return !refuses;
}

/* Where in the receive buffer of a destination this rank's rows begin; NULL = it is gone. */
static char *granted(const struct exchange *x, int i)
{
    const struct epx_grant *grant = &x->out[i].grant;
    int rank = x->destinations->rank[i];
    const struct epx_segment *segment;

    if (rank == x->direct->comm->rank)
        return (char *)x->request->call.fields.at[0].out + bytes_of(x, grant->row);
    segment = epx_segment_of_id(x->direct->comm->segments, grant->segment);
    if (!segment)
        return NULL;
    return segment->window->address[rank] + grant->offset + bytes_of(x, grant->row);
}

/* Whether the edges of the same two ranks that come before are through. */
static int is_turn(const struct epx_ends *ends, int i, const struct exchange *x, int incoming)
{
    for (int k = ends->before[i]; k >= 0; k = ends->before[k])
        if ((incoming ? x->in[k].state : x->out[k].state) != EPX_EDGE_THROUGH)
            return 0;
    return 1;
}

static int end_in(const struct exchange *x, int i)
{
    x->in[i].state = EPX_EDGE_THROUGH;
    x->edges->through++;
    return 1;
}

static int end_out(const struct exchange *x, int i)
{
    x->out[i].state = EPX_EDGE_THROUGH;
    x->edges->through++;
    return 1;
}

/* Stores some of the rows; after the last, tells the destination that all are there. */
static int store_rows(const struct exchange *x, int i)
{
    struct epx_edge_out *edge = &x->out[i];
    int64_t all = edge->bytes, length = all - edge->moved;
    char *to = granted(x, i);

    if (!to) {
        note_error(x, epx_fail(EPX_ERR_BUFFER, "the receive buffer of rank %d was freed",
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
        post(x, &edge->other->arrived.number, x->destinations->rank[i]);
    else
        post_rows(x, i, EPX_ROWS_STORED);
    return end_out(x, i);
}

/* The bytes that fit into a slot of a ring, of those that are left. */
static int64_t piece(const struct exchange *x, int64_t left)
{
    return left < x->direct->slot_bytes ? left : x->direct->slot_bytes;
}

static int push_rows(const struct exchange *x, int i)
{
    struct epx_edge_out *edge = &x->out[i];
    int64_t all = edge->bytes, before = edge->moved;
    int rank = x->destinations->rank[i];
    char *slot;

    if (!is_turn(x->destinations, i, x, 0))
        return 0;
    while (edge->moved < all && edge->moved - before < EPX_DIRECT_STRIDE &&
           (slot = epx_ring_claim(x->direct, rank))) {
        int64_t bytes = piece(x, all - edge->moved);

        memcpy(slot, rows_for(x, i) + edge->moved, (size_t)bytes);
        epx_ring_push(x->direct, rank);
        epx_ring_publish(x->direct, rank);
        edge->moved += bytes;
    }
    return edge->moved == all ? end_out(x, i) : edge->moved > before;
}

static int pop_rows(const struct exchange *x, int i)
{
    const struct epx_call *call = &x->request->call;
    struct epx_edge_in *edge = &x->in[i];
    int64_t all = bytes_of(x, call->recvcounts[i]), before = edge->moved;
    char *to = (char *)call->fields.at[0].out + bytes_of(x, call->rdispls[i]);
    int rank = x->sources->rank[i];
    const char *slot;

    if (!is_turn(x->sources, i, x, 1))
        return 0;
    while (edge->moved < all && edge->moved - before < EPX_DIRECT_STRIDE &&
           (slot = epx_ring_peek(x->direct, rank))) {
        int64_t bytes = piece(x, all - edge->moved);

        memcpy(to + edge->moved, slot, (size_t)bytes);
        epx_ring_pop(x->direct, rank);
        epx_ring_release(x->direct, rank);
        edge->moved += bytes;
    }
    return edge->moved == all ? end_in(x, i) : edge->moved > before;
}

/* The receiver is ready: the rows go by its last grant, if that is in force, else one is asked for,
 * unless that was done. */
static int go_on(const struct exchange *x, int i, uint64_t known)
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
static int is_ready(const struct exchange *x, int i, int64_t *row_bytes, uint64_t *known)
{
    const struct epx_edge_out *edge = &x->out[i];
    struct epx_ready_line *ready = &edge->own->ready[x->bank];
    struct epx_rows_line *rows;

    if (edge->back >= 0) {
        rows = &x->in[edge->back].own->rows[x->bank];
        if (has_come(x, &rows->number)) {
            *row_bytes = rows->row_bytes;
            *known = rows->known_ago ? x->epoch - rows->known_ago : 0;
            return 1;
        }
    }
    if (!has_come(x, &ready->number))
        return 0;
    *row_bytes = ready->row_bytes;
    *known = ready->known;
    return 1;
}

static int await_ready(const struct exchange *x, int i)
{
    int64_t row_bytes = x->request->call.row_bytes, its_bytes;
    int rank = x->destinations->rank[i];
    uint64_t known;

    if (x->everyone)
        return go_on(x, i, (uint64_t)x->direct->ready[rank].known);
    if (!is_ready(x, i, &its_bytes, &known))
        return 0;
    if (its_bytes == row_bytes)
        return go_on(x, i, known);
    if (!is_short(x, i) && may_have_grant(x, i))
        post_rows(x, i, EPX_ROWS_COUNTED);
    note_error(x, epx_fail_edge(x->direct->comm->rank, row_bytes, rank, its_bytes));
    return end_out(x, i);
}

static int await_grant(const struct exchange *x, int i)
{
    struct epx_edge_out *edge = &x->out[i];

    if (!has_come(x, &edge->own->granted.number))
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

/* Moves an edge that begins here on; returns whether it got on. */
static int send_on(const struct exchange *x, int i)
{
    switch (x->out[i].state) {
    case EPX_EDGE_WORD: return await_ready(x, i);
    case EPX_EDGE_GRANT: return await_grant(x, i);
    case EPX_EDGE_ROWS:
        return x->out[i].grant.row == EPX_GRANT_RING ? push_rows(x, i) : store_rows(x, i);
    default: return 0;
    }
}

/* Whether rows of an edge can be taken: as many as were told, of the length that was told. */
static int check_word(const struct exchange *x, int i, const struct epx_rows_line *line)
{
    const struct epx_call *call = &x->request->call;

    if (!x->edges->known)
        return !x->edges->refuses; /* look_at_words has checked them */
    if (line->row_bytes != call->row_bytes)
        note_error(x, epx_fail_edge(x->sources->rank[i], line->row_bytes, x->direct->comm->rank,
                                    call->row_bytes));
    else if (line->rows != call->recvcounts[i])
        note_error(x, epx_fail_fixed(x->sources->rank[i], line->rows, call->recvcounts[i]));
    else
        return 1;
    return 0;
}

static void take_carried(const struct exchange *x, int i, struct epx_rows_line *line)
{
    const struct epx_call *call = &x->request->call;
    const int64_t bytes = bytes_of(x, line->rows);

    if (bytes)
        memcpy((char *)call->fields.at[0].out + bytes_of(x, call->rdispls[i]),
               payload_of(line, bytes), (size_t)bytes);
}

static int await_rows_word(const struct exchange *x, int i)
{
    struct epx_edge_in *edge = &x->in[i];
    struct epx_rows_line *line = &edge->own->rows[x->bank];
    int takes, more = 0;

    if (!has_come(x, &line->number))
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

static int take_rows(const struct exchange *x, int i)
{
    if (comes_by_ring(x, i))
        return pop_rows(x, i);
    return has_come(x, &x->in[i].own->arrived.number) ? end_in(x, i) : 0;
}

/* Moves an edge that ends here on; returns whether it got on. */
static int receive_on(const struct exchange *x, int i)
{
    switch (x->in[i].state) {
    case EPX_EDGE_WORD: return await_rows_word(x, i);
    case EPX_EDGE_ROWS: return take_rows(x, i);
    default: return 0;
    }
}

static int finish(const struct exchange *x)
{
    if (!x->edges->error)
        return epx_alltoallv_finish(x->request);
    x->request->complete = 1;
    return epx_fail_quietly(x->edges->error, x->edges->message);
}

static void send_all_on(const struct exchange *x, int *moved)
{
    for (int i = 0; i < x->destinations->num; i++) {
        if (x->out[i].state == EPX_EDGE_THROUGH)
            continue;
        *moved |= send_on(x, i);
        if (x->out[i].state != EPX_EDGE_THROUGH)
            x->request->waiting_for = x->destinations->rank[i];
    }
}

/* The words of others may wait for what this rank sends, and its own as well. */
static void await_words(const struct exchange *x, int *moved)
{
    int lacking;

    send_all_on(x, moved);
    lacking = words_lack(x);
    if (lacking >= 0) {
        x->request->waiting_for = lacking;
        return;
    }
    *moved = 1;
    place(x);
}

static int move(const struct exchange *x, int *moved)
{
    send_all_on(x, moved);
    for (int i = 0; i < x->sources->num; i++) {
        if (x->in[i].state == EPX_EDGE_THROUGH)
            continue;
        *moved |= receive_on(x, i);
        if (x->in[i].state != EPX_EDGE_THROUGH)
            x->request->waiting_for = x->sources->rank[i];
    }
    return x->edges->through == x->sources->num + x->destinations->num ? finish(x) : EPX_SUCCESS;
}

static int step(const void *exchange, int *moved)
{
    const struct exchange *x = exchange;

    switch (x->request->phase) {
    case AWAIT_WORDS: await_words(x, moved); return EPX_SUCCESS;
    case MOVE: return move(x, moved);
    default: return begin(x, moved);
    }
}

int epx_alltoallv_direct(struct epx_request *request, int *moved)
{
    const struct exchange x = exchange_of(request);

    return epx_alltoallv_progress(request, step, &x, moved);
}
