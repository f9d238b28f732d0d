/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pieces.h - how messages of any length go through stages of a fixed size: in rounds, a piece of
 * each message in a round, behind a header.
 *
 *   stage   [rank] shares of share_bytes: header, piece
 *   round   piece n of a message is its bytes from n * piece_bytes on; the last is shorter, those
 *           after it are empty
 *
 * A message of no bytes takes one round all the same.
 */
#ifndef EPX_TRANSPORT_CUDA_PIECES_H
#define EPX_TRANSPORT_CUDA_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

enum { EPX_MOST_PIECE_BYTES = 1 << 20, EPX_PIECE_HEADER_BYTES = EPX_LINE_BYTES };

struct epx_pieces {
    int64_t share_bytes, piece_bytes;
};

/* The shares of all ranks take at most stage_bytes together, unless that is too little for a header
 * and a line each. */
static inline struct epx_pieces epx_pieces_of(int64_t stage_bytes, int num_ranks)
{
    int64_t least = EPX_PIECE_HEADER_BYTES + EPX_LINE_BYTES;
    int64_t most = EPX_PIECE_HEADER_BYTES + EPX_MOST_PIECE_BYTES;
    int64_t share = stage_bytes / num_ranks / EPX_LINE_BYTES * EPX_LINE_BYTES;

    share = share < least ? least : share > most ? most : share;
    return (struct epx_pieces){share, share - EPX_PIECE_HEADER_BYTES};
}

static inline int64_t epx_pieces_rounds(const struct epx_pieces *pieces, int64_t message_bytes)
{
    return message_bytes ? (message_bytes - 1) / pieces->piece_bytes + 1 : 1;
}

static inline size_t epx_piece_bytes(const struct epx_pieces *pieces, int64_t message_bytes,
                                     int64_t round)
{
    int64_t left = message_bytes - round * pieces->piece_bytes;

    return (size_t)(left < 0 ? 0 : left < pieces->piece_bytes ? left : pieces->piece_bytes);
}

#endif
