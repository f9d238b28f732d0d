/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_rows.c - the rows of an alltoallv as streams of bytes between ranks. */
#include "coll/staged/peer_rows.h"

#include <stdlib.h>

#include "kernels/host/row_copy.h"

static int num_edges(const struct epx_ends *ends, int first)
{
    int num = 0;

    for (int i = first; i >= 0; i = ends->next[i])
        num++;
    return num;
}

static void make_streams(struct epx_arrays *all, struct epx_streams *streams, int peers)
{
    EPX_ARRAY(all, streams->bytes, peers);
    EPX_ARRAY(all, streams->word_at, peers);
    EPX_ARRAY(all, streams->word_bytes, peers);
    EPX_ARRAY(all, streams->counts, peers);
    EPX_ARRAY(all, streams->displs, peers);
}

/* Places the words of all peers one behind the other. */
static void make_words(struct epx_arrays *all, struct epx_streams *streams,
                       const struct epx_ends *ends, const struct epx_peers *peers, const int *first)
{
    int bytes = 0;

    for (int p = 0; p < peers->num; p++) {
        streams->word_at[p] = bytes;
        streams->word_bytes[p] = (int)(sizeof(struct epx_peer_word) +
                                       (size_t)num_edges(ends, first[p]) * sizeof(int64_t));
        bytes += streams->word_bytes[p];
    }
    EPX_ARRAY(all, streams->words, bytes);
}

static int init(struct epx_peer_rows *rows, const struct epx_graph *graph)
{
    struct epx_arrays *all = &rows->arrays;
    const struct epx_ends *in = &graph->sources, *out = &graph->destinations;
    const struct epx_peers *peers = &graph->peers;

    rows->graph = graph;
    make_streams(all, &rows->out, peers->num);
    make_streams(all, &rows->in, peers->num);
    EPX_ARRAY(all, rows->counts, 2 * ((int64_t)in->num + out->num));
    EPX_ARRAY(all, rows->piece, peers->num);
    EPX_ARRAY(all, rows->skipped, peers->num);
    EPX_ARRAY(all, rows->rank, peers->num);
    EPX_ARRAY(all, rows->peer, peers->num);
    EPX_FAIL_IF(all->failed, EPX_ERR_NO_MEM, "no memory for the rows of %d ranks", peers->num);
    if (graph->everyone)
        return EPX_SUCCESS;
    make_words(all, &rows->out, out, peers, peers->destination);
    make_words(all, &rows->in, in, peers, peers->source);
    EPX_FAIL_IF(all->failed, EPX_ERR_NO_MEM, "no memory for the words of %d ranks", peers->num);
    return EPX_SUCCESS;
}

int epx_peer_rows_create(const struct epx_graph *graph, int64_t share_bytes,
                         struct epx_peer_rows **result)
{
    struct epx_peer_rows *rows = epx_memory_zeroed(1, sizeof(*rows));

    EPX_FAIL_IF(!rows, EPX_ERR_NO_MEM, "no memory for the rows of a graph");
    *result = rows;
    rows->share_bytes = share_bytes;
    return init(rows, graph);
}

void epx_peer_rows_free(struct epx_peer_rows *rows)
{
    if (!rows)
        return;
    epx_arrays_free(&rows->arrays);
    free(rows);
}

static int64_t stream_bytes(const struct epx_ends *ends, int first, const int64_t *rows,
                            int64_t row_bytes)
{
    int64_t all = 0;

    for (int i = first; i >= 0; i = ends->next[i])
        all += rows[i] * row_bytes;
    return all;
}

void epx_peer_rows_measure(struct epx_peer_rows *rows, const struct epx_call *call)
{
    const struct epx_graph *graph = rows->graph;

    for (int p = 0; p < graph->peers.num; p++) {
        rows->out.bytes[p] = stream_bytes(&graph->destinations, graph->peers.destination[p],
                                          call->sendcounts, call->row_bytes);
        rows->in.bytes[p] = stream_bytes(&graph->sources, graph->peers.source[p], call->recvcounts,
                                         call->row_bytes);
    }
}

/* Where the rows of the edges to or from a peer lie in the user's buffer. */
struct walk {
    const struct epx_ends *ends;
    int first;
    const int64_t *rows, *displs;
    int64_t row_bytes;
};

/* The part of a piece that lies in one edge: bytes, 0 = none; at: its place in the piece;
 * in_buffer: its place in the user's buffer. */
struct part {
    int64_t bytes, at, in_buffer;
};

/* start: where the edge begins in the stream. */
static struct part part_of(const struct walk *walk, int i, int64_t start, struct epx_piece piece)
{
    int64_t length = walk->rows[i] * walk->row_bytes, end = start + length;
    int64_t from = piece.from > start ? piece.from : start;
    int64_t to = piece.from + piece.bytes < end ? piece.from + piece.bytes : end;

    if (to <= from)
        return (struct part){0, 0, 0};
    return (struct part){to - from, from - piece.from,
                         walk->displs[i] * walk->row_bytes + from - start};
}

void epx_peer_rows_put(const struct epx_request *request, struct epx_piece piece, char *stage)
{
    const struct epx_call *call = &request->call;
    const struct epx_graph *graph = call->graph;
    const char *buffer = call->fields.at[0].in;
    const struct walk walk = {&graph->destinations, graph->peers.destination[piece.peer],
                              call->sendcounts, call->sdispls, call->row_bytes};
    int64_t start = 0;

    for (int i = walk.first; i >= 0; i = walk.ends->next[i]) {
        struct part part = part_of(&walk, i, start, piece);

        if (part.bytes)
            epx_row_copy(stage + part.at, buffer + part.in_buffer, part.bytes, piece.bypasses);
        start += walk.rows[i] * walk.row_bytes;
    }
}

void epx_peer_rows_get(const struct epx_request *request, struct epx_piece piece, const char *stage)
{
    const struct epx_call *call = &request->call;
    const struct epx_graph *graph = call->graph;
    char *buffer = call->fields.at[0].out;
    const struct walk walk = {&graph->sources, graph->peers.source[piece.peer], call->recvcounts,
                              call->rdispls, call->row_bytes};
    int64_t start = 0;

    for (int i = walk.first; i >= 0; i = walk.ends->next[i]) {
        struct part part = part_of(&walk, i, start, piece);

        if (part.bytes)
            epx_row_copy(buffer + part.in_buffer, stage + part.at, part.bytes, piece.bypasses);
        start += walk.rows[i] * walk.row_bytes;
    }
}

void epx_peer_rows_copy_own(const struct epx_request *request, int bypasses)
{
    const struct epx_call *call = &request->call;
    const struct epx_graph *graph = call->graph;
    const struct epx_ends *out = &graph->destinations;

    for (int i = 0; i < out->num; i++) {
        const int64_t bytes = call->sendcounts[i] * call->row_bytes;

        if (out->rank[i] == graph->comm->rank && bytes)
            epx_row_copy((char *)call->fields.at[0].out +
                             call->rdispls[out->place[i]] * call->row_bytes,
                         (const char *)call->fields.at[0].in + call->sdispls[i] * call->row_bytes,
                         bytes, bypasses);
    }
}
