/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_rows.h - the rows of an alltoallv, seen as bytes between this rank and each rank that it has
 * edges with: the rows of all edges to a rank, in their order, are one stream that goes in pieces.
 */
#ifndef EPX_COLL_STAGED_PEER_ROWS_H
#define EPX_COLL_STAGED_PEER_ROWS_H

#include "core/request.h"
#include "transport/transport.h"

/* What a rank of a graph first tells another: this, then the rows of each of its edges to it. */
struct epx_peer_word {
    int64_t row_bytes;
    int64_t piece_bytes; /* the longest piece that it can take */
    int64_t fixed;       /* it sends so many rows whenever the request is started */
    int64_t rows[];
};

/* The streams of one direction, and the pieces of the exchange under way. */
struct epx_streams {
    int64_t *bytes;       /* [peers] */
    int *word_at;         /* [peers] where the word for or from a peer lies */
    int *word_bytes;      /* [peers] */
    char *words;          /* of all peers */
    int *counts, *displs; /* [ranks of the exchange] bytes */
};

struct epx_peer_rows {
    struct epx_arrays arrays; /* all those below, and of the streams */
    const struct epx_graph *graph;
    int64_t *counts; /* the arrays of the call: epx_alltoallv_copy_counts */
    struct epx_streams out, in;
    int64_t share_bytes; /* a peer's part of a stage */
    int64_t *piece;      /* [peers] bytes of a stream that go at a time */
    char *skipped;       /* [peers] the lengths of rows differ */
    /* the exchange under way */
    struct epx_some_ranks ranks;
    int *rank, *peer; /* [ranks of the exchange] */
    int64_t round, num_rounds;
    int error; /* the first that a peer had, with its message */
    char message[EPX_MAX_ERROR_STRING];
};

int epx_peer_rows_create(const struct epx_graph *graph, int64_t share_bytes,
                         struct epx_peer_rows **rows);
void epx_peer_rows_free(struct epx_peer_rows *rows);

static inline struct epx_peer_word *epx_peer_word(const struct epx_streams *streams, int peer)
{
    return (struct epx_peer_word *)(void *)(streams->words + streams->word_at[peer]);
}

/* Once the counts and displacements are known: the length of each stream. */
void epx_peer_rows_measure(struct epx_peer_rows *rows, const struct epx_call *call);
/* Copy a piece of the stream to or from a peer: from the send buffer to a stage, and from a stage,
 * or what is a stage here, to the receive buffer. */
struct epx_piece {
    int peer;
    int64_t from, bytes; /* of the stream */
    int bypasses;
};
void epx_peer_rows_put(const struct epx_request *request, struct epx_piece piece, char *stage);
void epx_peer_rows_get(const struct epx_request *request, struct epx_piece piece,
                       const char *stage);
/* Copies the rows that this rank sends itself. */
void epx_peer_rows_copy_own(const struct epx_request *request, int bypasses);

#endif
