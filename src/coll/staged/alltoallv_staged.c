/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * alltoallv_staged.c - counts, then rows through the stages, in as many exchanges as the longest
 * stream of rows needs. Among all ranks these are collectives: counts by alltoall, and the ready
 * words tell the longest stream. Along the edges of a graph a rank exchanges words, then pieces,
 * with the ranks that it has edges with; how often, the two ranks of a stream know from their
 * words. A receiver without room takes the rows into its stage and drops them.
 *
 * With fixed counts on both ranks the words are exchanged once: later operations of the two
 * requests begin with rows.
 */
#include <string.h>

#include "coll/alltoallv.h"
#include "coll/staged/peer_rows.h"
#include "coll/staged/staged.h"
#include "coll/verbs.h"
#include "core/agree.h"
#include "core/verdict.h"
#include "kernels/host/row_copy.h"

enum { AWAIT_COUNTS = EPX_PHASE_VERB, NEXT, PACK, EXCHANGE };

/* Rows are copied into a stage, sent and copied out in turn. In messages of this size they stay in
 * the caches meanwhile, and the copies keep up with a link of 10 Gb/s, as those of 2 MiB do not. */
enum { MOST_MESSAGE_BYTES = 1 << 19 };

/* An operation on the rows of its graph. */
struct exchange {
    struct epx_staged *staged;
    struct epx_request *request;
    struct epx_call *call;
    const struct epx_graph *graph;
    struct epx_peer_rows *rows;
    struct epx_fixed *fixed;
};

static struct exchange exchange_of(struct epx_request *request)
{
    struct epx_staged *staged = epx_staged_of(request);
    struct epx_graph *graph = request->call.graph;

    return (struct exchange){staged,
                             request,
                             &request->call,
                             graph,
                             graph->everyone ? staged->everyone : graph->peer_rows,
                             epx_alltoallv_fixed(request)};
}

/* Bytes of the longest piece that a peer can send this rank. */
static int64_t most_piece(const struct epx_peer_rows *rows)
{
    return rows->share_bytes < MOST_MESSAGE_BYTES ? rows->share_bytes : MOST_MESSAGE_BYTES;
}

static void graph_free(struct epx_graph *graph)
{
    epx_peer_rows_free(graph->peer_rows);
}

int epx_graph_create_staged(struct epx_graph *graph)
{
    const struct epx_staged *staged = graph->comm->transport->staged;
    const int peers = graph->peers.num ? graph->peers.num : 1;
    const int64_t share = staged->stage_bytes / peers / EPX_LINE_BYTES * EPX_LINE_BYTES;

    graph->ground_free = graph_free;
    return epx_comm_agree(graph->comm, epx_peer_rows_create(graph, share, &graph->peer_rows));
}

/* Whether the counts both ways are known from an earlier operation of the same request. */
static int is_linked(const struct exchange *x, int peer)
{
    return x->fixed && x->fixed->linked[peer];
}

static int is_self(const struct exchange *x, int peer)
{
    return x->graph->peers.rank[peer] == x->staged->comm->rank;
}

static void write_word(const struct exchange *x, int peer)
{
    struct epx_peer_word *word = epx_peer_word(&x->rows->out, peer);
    const struct epx_ends *out = &x->graph->destinations;
    int k = 0;

    word->row_bytes = x->call->row_bytes;
    word->piece_bytes = most_piece(x->rows);
    word->fixed = x->fixed != NULL;
    for (int i = x->graph->peers.destination[peer]; i >= 0; i = out->next[i])
        word->rows[k++] = x->call->sendcounts[i];
}

static void add_to_exchange(const struct exchange *x, int peer)
{
    struct epx_peer_rows *rows = x->rows;
    int k = rows->ranks.num++;

    rows->peer[k] = peer;
    rows->rank[k] = x->graph->peers.rank[peer];
}

static int start_exchange(const struct exchange *x, char *out, char *in)
{
    struct epx_peer_rows *rows = x->rows;

    rows->ranks.rank = rows->rank;
    epx_staged_count(x->staged, rows->ranks.num);
    return x->staged->messages->exchange(
        x->staged->state, rows->ranks, (struct epx_blocks){out, rows->out.counts, rows->out.displs},
        (struct epx_blocks){in, rows->in.counts, rows->in.displs});
}

static void place_words(struct epx_streams *streams, const int *peer, int num)
{
    for (int k = 0; k < num; k++) {
        streams->counts[k] = streams->word_bytes[peer[k]];
        streams->displs[k] = streams->word_at[peer[k]];
    }
}

/* Starts to exchange words with the peers of a graph whose counts are not known. */
static int exchange_words(const struct exchange *x)
{
    struct epx_peer_rows *rows = x->rows;

    rows->ranks.num = 0;
    rows->error = EPX_SUCCESS;
    for (int p = 0; p < x->graph->peers.num; p++) {
        rows->skipped[p] = 0;
        if (is_self(x, p) || is_linked(x, p))
            continue;
        write_word(x, p);
        add_to_exchange(x, p);
    }
    place_words(&rows->out, rows->peer, rows->ranks.num);
    place_words(&rows->in, rows->peer, rows->ranks.num);
    x->request->phase = AWAIT_COUNTS;
    return start_exchange(x, rows->out.words, rows->in.words);
}

/* Whether the counts of all ranks are known to all, from one and the same operation: each tells
 * whether it knows them. */
static int all_know(const struct exchange *x)
{
    const struct epx_ready *ready = x->staged->ready;

    for (int r = 0; r < x->staged->comm->size; r++)
        if (!ready[r].known || ready[r].known != ready[0].known)
            return 0;
    return 1;
}

static int exchange_counts(const struct exchange *x, int *moved)
{
    int weighted;

    EPX_TRY(epx_staged_handshake(x->request, &weighted, moved));
    if (!*moved)
        return EPX_SUCCESS;
    x->rows->error = EPX_SUCCESS;
    if (all_know(x)) {
        memcpy(x->call->recvcounts, x->fixed->rows,
               (size_t)x->graph->sources.num * sizeof(*x->fixed->rows));
        return EPX_SUCCESS;
    }
    epx_staged_count(x->staged, x->graph->peers.others);
    return x->staged->messages->alltoall(x->staged->state, x->call->sendcounts, x->call->recvcounts,
                                         (int)sizeof(*x->call->sendcounts));
}

static int begin(const struct exchange *x, int *moved)
{
    if (x->request->phase == EPX_PHASE_POST)
        epx_alltoallv_copy_counts(x->request, x->rows->counts);
    if (x->graph->everyone)
        return exchange_counts(x, moved);
    *moved = 1;
    return exchange_words(x);
}

static void fail_peer(const struct exchange *x, int peer, int64_t told_bytes)
{
    const struct epx_peers *peers = &x->graph->peers;
    int self = x->staged->comm->rank, rank = peers->rank[peer], error;

    x->rows->skipped[peer] = 1;
    error = peers->destination[peer] >= 0
                ? epx_fail_edge(self, x->call->row_bytes, rank, told_bytes)
                : epx_fail_edge(rank, told_bytes, self, x->call->row_bytes);
    if (x->rows->error)
        return;
    x->rows->error = error;
    memcpy(x->rows->message, epx_status_message(), sizeof(x->rows->message));
}

static void read_word(const struct exchange *x, int peer)
{
    const struct epx_peer_word *word = epx_peer_word(&x->rows->in, peer);
    const struct epx_ends *in = &x->graph->sources;
    int64_t own_piece = most_piece(x->rows);
    int k = 0;

    for (int i = x->graph->peers.source[peer]; i >= 0; i = in->next[i])
        x->call->recvcounts[i] = word->rows[k++];
    x->rows->piece[peer] = word->piece_bytes < own_piece ? word->piece_bytes : own_piece;
    if (word->row_bytes != x->call->row_bytes)
        fail_peer(x, peer, word->row_bytes);
    else if (x->fixed && word->fixed)
        x->fixed->linked[peer] = 1; /* for later operations */
}

/* The rows of the edges from a peer, where no word told them: own ones, and known ones. */
static void know_rows(const struct exchange *x, int peer)
{
    const struct epx_ends *in = &x->graph->sources, *out = &x->graph->destinations;

    for (int i = x->graph->peers.source[peer]; !is_self(x, peer) && i >= 0; i = in->next[i])
        x->call->recvcounts[i] = x->fixed->rows[i];
    for (int i = x->graph->peers.destination[peer]; is_self(x, peer) && i >= 0; i = out->next[i])
        x->call->recvcounts[out->place[i]] = x->call->sendcounts[i];
}

static void read_words(const struct exchange *x)
{
    for (int p = 0; p < x->graph->peers.num; p++)
        if (is_self(x, p) || is_linked(x, p))
            know_rows(x, p);
        else
            read_word(x, p);
}

static int64_t rounds_of(int64_t bytes, int64_t piece)
{
    return bytes ? (bytes + piece - 1) / piece : 0;
}

/* All ranks make as many exchanges as the longest stream of any rank needs. */
static void plan_for_everyone(const struct exchange *x)
{
    int64_t most = 0, piece = most_piece(x->rows);

    for (int r = 0; r < x->staged->comm->size; r++) {
        most = x->staged->ready[r].most_rows > most ? x->staged->ready[r].most_rows : most;
        x->rows->piece[r] = piece;
    }
    x->rows->num_rounds = rounds_of(most * x->call->row_bytes, piece);
    if (x->fixed)
        epx_alltoallv_learn(x->request);
}

/* The longest stream of this rank: with a peer there are as many exchanges as the longer of the two
 * streams between them needs. */
static void plan(const struct exchange *x)
{
    struct epx_peer_rows *rows = x->rows;

    rows->num_rounds = 0;
    for (int p = 0; p < x->graph->peers.num; p++) {
        int64_t out = rows->out.bytes[p], in = rows->in.bytes[p], num;

        if (is_self(x, p) || rows->skipped[p])
            continue;
        num = rounds_of(out > in ? out : in, rows->piece[p]);
        rows->num_rounds = num > rows->num_rounds ? num : rows->num_rounds;
    }
    if (x->fixed)
        epx_alltoallv_learn(x->request);
}

static int fits(const struct exchange *x)
{
    return !x->rows->error && x->request->received_rows <= x->call->recv_capacity;
}

static int bypasses(const struct exchange *x)
{
    return epx_rows_bypass(x->request->received_rows * x->call->row_bytes);
}

static void copy_own(const struct exchange *x)
{
    if (fits(x))
        epx_peer_rows_copy_own(x->request, bypasses(x));
    epx_row_copy_fence();
}

static void place(const struct exchange *x)
{
    if (!x->graph->everyone)
        read_words(x);
    epx_alltoallv_place(x->request);
    epx_peer_rows_measure(x->rows, x->call);
    if (x->graph->everyone)
        plan_for_everyone(x);
    else
        plan(x);
    x->rows->round = -1;
    x->request->phase = NEXT;
    if (!x->rows->num_rounds)
        copy_own(x);
}

static int finish(const struct exchange *x)
{
    if (!x->rows->error)
        return epx_alltoallv_finish(x->request);
    x->request->complete = 1;
    return epx_fail_quietly(x->rows->error, x->rows->message);
}

/* The piece of a stream in the round under way. */
static struct epx_piece piece_of(const struct exchange *x, int peer, int64_t stream_bytes)
{
    int64_t piece = x->rows->piece[peer], from = x->rows->round * piece;
    int64_t left = stream_bytes - from;

    return (struct epx_piece){peer, from, left < 0 ? 0 : left < piece ? left : piece, 0};
}

static void add_pieces(const struct exchange *x, int peer)
{
    struct epx_peer_rows *rows = x->rows;
    int64_t out = piece_of(x, peer, rows->out.bytes[peer]).bytes;
    int64_t in = piece_of(x, peer, rows->in.bytes[peer]).bytes;
    int k = rows->ranks.num;

    if (!x->graph->everyone && !out && !in)
        return;
    add_to_exchange(x, peer);
    rows->out.counts[k] = (int)out;
    rows->in.counts[k] = (int)in;
    rows->out.displs[k] = rows->in.displs[k] = (int)(peer * rows->share_bytes);
    if (is_self(x, peer))
        rows->out.counts[k] = rows->in.counts[k] = 0;
}

static int next(const struct exchange *x)
{
    struct epx_peer_rows *rows = x->rows;

    if (++rows->round >= rows->num_rounds)
        return finish(x);
    rows->ranks.num = 0;
    for (int p = 0; p < x->graph->peers.num; p++)
        if (x->graph->everyone || (!is_self(x, p) && !rows->skipped[p]))
            add_pieces(x, p);
    x->request->phase = PACK;
    return EPX_SUCCESS;
}

/* Finds where to write the pieces for all peers; 0 = not yet. */
static int claim(const struct exchange *x)
{
    if (x->graph->everyone)
        return epx_staged_claim(x->staged, EPX_TO_EXPERTS);
    epx_staged_forget(x->staged);
    return 1;
}

static void put_piece(const struct exchange *x, int k)
{
    struct epx_peer_rows *rows = x->rows;
    struct epx_stage_stores *stores = &x->staged->stores[rows->rank[k]];
    struct epx_piece piece = piece_of(x, rows->peer[k], rows->out.bytes[rows->peer[k]]);
    char *to = x->staged->home_stage + rows->out.displs[k];

    if (!rows->out.counts[k])
        return;
    if (!x->graph->everyone) {
        epx_peer_rows_put(x->request, piece, to);
        return;
    }
    epx_stage_stores_begin(stores, 1, piece.bytes);
    piece.bypasses = stores->bypasses;
    epx_peer_rows_put(x->request, piece, x->staged->home_at[rows->rank[k]]);
    epx_stage_stores_end(stores);
}

static int send_pieces(const struct exchange *x)
{
    struct epx_staged *staged = x->staged;
    struct epx_peer_rows *rows = x->rows;

    staged->stale = 1;
    if (!x->graph->everyone)
        return start_exchange(x, staged->home_stage, staged->expert_stage);
    epx_staged_count(staged, x->graph->peers.others);
    return staged->messages->alltoallv(
        staged->state, (struct epx_blocks){staged->home_stage, rows->out.counts, rows->out.displs},
        (struct epx_blocks){staged->expert_stage, rows->in.counts, rows->in.displs});
}

static int pack(const struct exchange *x, int *moved)
{
    if (!claim(x))
        return EPX_SUCCESS;
    for (int k = 0; k < x->rows->ranks.num; k++)
        put_piece(x, k);
    *moved = 1;
    x->request->phase = EXCHANGE;
    EPX_TRY(send_pieces(x));
    if (!x->rows->round)
        copy_own(x);
    return EPX_SUCCESS;
}

static int unpack(const struct exchange *x)
{
    struct epx_peer_rows *rows = x->rows;
    int past_caches = bypasses(x);

    for (int k = 0; fits(x) && k < rows->ranks.num; k++) {
        struct epx_piece piece = piece_of(x, rows->peer[k], rows->in.bytes[rows->peer[k]]);

        piece.bypasses = past_caches;
        if (rows->in.counts[k])
            epx_peer_rows_get(x->request, piece, x->staged->expert_stage + rows->in.displs[k]);
    }
    epx_row_copy_fence();
    x->request->phase = NEXT;
    return EPX_SUCCESS;
}

static int step(const void *exchange, int *moved)
{
    const struct exchange *x = exchange;

    switch (x->request->phase) {
    case AWAIT_COUNTS:
        EPX_TRY(epx_staged_done(x->staged, moved));
        if (*moved)
            place(x);
        return EPX_SUCCESS;
    case NEXT: *moved = 1; return next(x);
    case PACK: return pack(x, moved);
    case EXCHANGE:
        EPX_TRY(epx_staged_done(x->staged, moved));
        return *moved ? unpack(x) : EPX_SUCCESS;
    default: return begin(x, moved);
    }
}

int epx_alltoallv_staged(struct epx_request *request, int *moved)
{
    const struct exchange x = exchange_of(request);

    return epx_alltoallv_progress(request, step, &x, moved);
}
