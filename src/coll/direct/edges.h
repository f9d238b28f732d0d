/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * edges.h - what the two ranks of an edge tell each other: words in each other's windows, with
 * short blocks of rows in them. alltoallv_direct.c explains the protocol.
 */
#ifndef EPX_COLL_DIRECT_EDGES_H
#define EPX_COLL_DIRECT_EDGES_H

#include "coll/alltoallv.h"
#include "coll/direct/direct.h"
#include "core/graph/graph.h"

/* Blocks of at most so many bytes travel with the word that tells their rows. */
enum { EPX_EDGE_PAYLOAD = 512, EPX_EDGE_FEW = 32 };

/* COUNTED: the word tells rows alone; CARRIED: it has them; STORED: they are in the receiver's
 * buffer, or about to be put into its ring. */
enum epx_rows_word { EPX_ROWS_COUNTED, EPX_ROWS_CARRIED, EPX_ROWS_STORED };

/* Where an edge ends, in the receiver's window; written by the sender. */
struct epx_head_lines {
    struct epx_rows_line {
        _Alignas(EPX_LINE_BYTES) _Atomic uint64_t number;
        int64_t row_bytes, rows;
        int16_t kind;           /* enum epx_rows_word */
        int16_t fixed;          /* the sender sends so many rows whenever the request is started */
        uint32_t known_ago;     /* as `known` of a ready line: so many operations ago; 0 = none */
        char few[EPX_EDGE_FEW]; /* rows of no more bytes, in the line of the word */
        char payload[EPX_EDGE_PAYLOAD];
    } rows[2];
    struct {
        _Alignas(EPX_LINE_BYTES) _Atomic uint64_t number;
    } arrived;
};

/* The rows of grants that are none (struct epx_grant). */
enum { EPX_GRANT_RING = -1, EPX_GRANT_NOTHING = -2 };

/* Where an edge begins, in the sender's window; written by the receiver. */
struct epx_tail_lines {
    struct epx_ready_line {
        _Alignas(EPX_LINE_BYTES) _Atomic uint64_t number;
        int64_t row_bytes;
        uint64_t known; /* the operation in which the counts were learned, whose number grants
                           bear; 0 = none */
    } ready[2];
    struct {
        _Alignas(EPX_LINE_BYTES) _Atomic uint64_t number;
        struct epx_grant grant;
    } granted;
};

enum epx_edge_state {
    EPX_EDGE_WORD,  /* the other rank's word is awaited */
    EPX_EDGE_GRANT, /* the sender waits for a grant */
    EPX_EDGE_ROWS,  /* the rows are moved */
    EPX_EDGE_THROUGH
};

/* An edge that ends here, and one that begins here: its lines in this rank's window, and in that of
 * the other rank. */
struct epx_edge_in {
    struct epx_head_lines *own;
    struct epx_tail_lines *other;
    int back; /* the edge back to that rank, which has as many edges to it before; -1 = none */
    enum epx_edge_state state;
    int64_t moved; /* bytes taken from the ring */
};

struct epx_edge_out {
    struct epx_tail_lines *own;
    struct epx_head_lines *other;
    int back; /* the edge back from that rank; -1 = none */
    enum epx_edge_state state;
    int tells_first; /* the word rows is the first that goes along */
    int64_t bytes;   /* of its rows */
    int64_t moved;   /* bytes stored, or put into the ring */
    struct epx_grant grant;
    int asked; /* the grant is of this operation */
};

/* What the direct ground has of a list of partners. */
struct epx_edges {
    struct epx_arrays arrays; /* all those below */
    struct epx_edge_in *in;   /* [sources] */
    struct epx_edge_out *out; /* [destinations] */
    int64_t *counts;          /* the arrays of the call: epx_alltoallv_copy_counts */
    struct epx_board *board;  /* where this rank's lines lie; NULL = in the ground's own window */
    size_t board_at, board_bytes;
    int64_t *told; /* [R] until the graph is made */
    /* the operation under way */
    int through;        /* edges that need nothing any more */
    int refuses;        /* this rank takes no rows */
    uint64_t known;     /* the operation whose counts are known from; 0 = they are not */
    uint32_t known_ago; /* so many operations ago; 0 if that is too large a number, too */
    int error;          /* the first that an edge had, with its message */
    char message[EPX_MAX_ERROR_STRING];
};

/* Bytes of a rank's lines. */
size_t epx_edges_bytes(int num_sources, int num_destinations);
/* Local: the edges of all ranks, with lines at the end of the ground's window. */
int epx_edges_of_everyone(struct epx_direct *direct);
void epx_edges_free(struct epx_edges *edges);
/* The first error of an edge is that of the operation; the other edges go on. */
void epx_edges_note_error(struct epx_edges *edges, int error);
/* The operation of struct epx_ground. */
int epx_graph_create_direct(struct epx_graph *graph);
/* Frees the boards: no operation of a graph is started any more. */
void epx_boards_free(const struct epx_transport *transport);

#endif
