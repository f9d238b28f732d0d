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
#include "coll/direct/edge_operation.h"
#include "coll/verbs.h"

enum { AWAIT_WORDS = EPX_PHASE_VERB, MOVE };

static struct epx_edge_operation operation_of(struct epx_request *request)
{
    struct epx_graph *graph = request->call.graph;
    struct epx_direct *direct = epx_direct_of(request);
    struct epx_edges *edges = graph->everyone ? direct->everyone : graph->edges;

    return (struct epx_edge_operation){.direct = direct,
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

/* Begins all edges, those to destinations first: they wait for the words. A number of operations
 * that is too large for a word is told by a ready word. */
static void begin_edges(const struct epx_edge_operation *x)
{
    struct epx_edges *edges = x->edges;
    const uint64_t known = x->fixed ? x->fixed->known : 0;
    const uint64_t ago = known ? x->epoch - known : 0;

    edges->through = edges->refuses = 0;
    edges->error = EPX_SUCCESS;
    edges->known = known;
    edges->known_ago = ago <= UINT32_MAX ? (uint32_t)ago : 0;
    epx_edges_out_begin(x);
    epx_edges_in_begin(x);
}

/* Finds where rows go, from the words of all sources, or from what is known of them. */
static void place(const struct epx_edge_operation *x)
{
    int fixed = 0;

    if (x->edges->known)
        x->request->call.recvcounts = x->fixed->rows;
    else
        epx_edges_in_agree(x, &fixed);
    x->edges->refuses |= !epx_alltoallv_place(x->request);
    if (fixed && !x->edges->refuses)
        epx_alltoallv_learn(x->request);
    x->request->phase = MOVE;
}

static int begin(const struct epx_edge_operation *x, int *moved)
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

static int finish(const struct epx_edge_operation *x)
{
    if (!x->edges->error)
        return epx_alltoallv_finish(x->request);
    x->request->complete = 1;
    return epx_fail_quietly(x->edges->error, x->edges->message);
}

/* The words of others may wait for what this rank sends, and its own as well. */
static void await_words(const struct epx_edge_operation *x, int *moved)
{
    int lacking;

    epx_edges_out_go_on(x, moved);
    lacking = epx_edges_in_lack(x);
    if (lacking >= 0) {
        x->request->waiting_for = lacking;
        return;
    }
    *moved = 1;
    place(x);
}

static int move(const struct epx_edge_operation *x, int *moved)
{
    epx_edges_out_go_on(x, moved);
    epx_edges_in_go_on(x, moved);
    return x->edges->through == x->sources->num + x->destinations->num ? finish(x) : EPX_SUCCESS;
}

static int step(const void *operation, int *moved)
{
    const struct epx_edge_operation *x = operation;

    switch (x->request->phase) {
    case AWAIT_WORDS: await_words(x, moved); return EPX_SUCCESS;
    case MOVE: return move(x, moved);
    default: return begin(x, moved);
    }
}

int epx_alltoallv_direct(struct epx_request *request, int *moved)
{
    const struct epx_edge_operation x = operation_of(request);

    return epx_alltoallv_progress(request, step, &x, moved);
}
