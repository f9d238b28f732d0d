/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ready_note.h - what a rank tells all others when it begins an operation: words that kernels
 * compare, and say what is wrong with. kernels/protocol/ready_words.cuh posts and reads them.
 */
#ifndef EPX_KERNELS_ARGS_READY_NOTE_H
#define EPX_KERNELS_ARGS_READY_NOTE_H

#include "kernels/control_words.h"

/* The words of a ready note, 32 bits each; the first five, and those of fields, are compared across
 * ranks. */
enum epx_ready_word {
    EPX_READY_VERB,    /* above it the number of the graph that the operation is on */
    EPX_READY_ROUTE,   /* id, -1 = none */
    EPX_READY_ROW_LOW, /* bytes of a row, of the first field */
    EPX_READY_ROW_HIGH,
    EPX_READY_DATATYPE, /* where rows are added; above it the number of biases */
    EPX_READY_WEIGHTS,  /* enum of ready.h */
    EPX_READY_SEGMENT,  /* of the receive buffer; -1 = it cannot be stored into */
    EPX_READY_OFFSET_LOW,
    EPX_READY_OFFSET_HIGH,
    EPX_READY_CAPACITY_LOW, /* alltoallv: rows of the receive buffer */
    EPX_READY_CAPACITY_HIGH,
    EPX_READY_ERROR, /* of the routing that the operation stands on; added by the kernel */
    EPX_READY_FIELDS /* of fields 1, 2 and 3: bytes of a row plus 1; 0 = there is no such field */
};

enum { EPX_READY_COMPARED = EPX_READY_WEIGHTS };

enum { EPX_READY_BIASES_SHIFT = 8, EPX_READY_GRAPH_SHIFT = 8 };

/*
 * Along the edges of a graph these words are others, which need not be the same on all ranks: only
 * two ranks that have an edge must have rows of one length. EPX_READY_ROW_LOW is 0 there.
 * EPX_READY_EDGE_STORED is EPX_READY_NONE_STORED plus the most bytes of an edge of this rank that
 * do not go in packets, in units of EPX_STORED_UNIT, rounded up, which the kernel adds.
 */
enum {
    EPX_READY_EDGE_STORED = EPX_READY_WEIGHTS,
    EPX_READY_EDGE_ROW_LOW = EPX_READY_CAPACITY_LOW,
    EPX_READY_NONE_STORED = 2, /* more than what weights of rows have */
    EPX_STORED_UNIT = 4096
};

/* Whether all ranks must tell the same in a word. */
EPX_HD int epx_ready_compared(int32_t word)
{
    return word < EPX_READY_COMPARED || word >= EPX_READY_FIELDS;
}

struct epx_ready_note {
    uint32_t word[EPX_READY_WORDS];
};

/* The receive buffers of fields 1, 2 and 3, three words each: what EPX_READY_SEGMENT and the two
 * words behind it tell of field 0. */
struct epx_list_note {
    uint32_t word[EPX_LIST_WORDS];
};

/* In the outcome EPX_OUTCOME_DIFFERS, in place of a word: this plus the number of a field. */
enum { EPX_DIFFERS_FIELD = EPX_READY_WORDS };

#endif
