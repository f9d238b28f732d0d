/* SPDX-License-Identifier: BSD-3-Clause */
/* bank_args.h - what is a small operation, and what its kernels know of its banks. */
#ifndef EPX_KERNELS_ARGS_BANK_ARGS_H
#define EPX_KERNELS_ARGS_BANK_ARGS_H

#include "kernels/args/block_shape.h"
#include "kernels/slices.h"

/*
 * Most that a small operation may have; the same on all ranks, as are their routes. Pairs, tokens,
 * experts and counts are those of a small routing.
 */
enum {
    EPX_SMALL_PAIRS = 1 << 13, /* of all ranks, as the next */
    EPX_SMALL_TOKENS = 1 << 11,
    EPX_SMALL_EXPERTS = 1 << 10,
    EPX_SMALL_COUNTS = 21 * 1024, /* in the count matrix */
    EPX_SMALL_RANKS = 64,
    EPX_SMALL_TOP_K = EPX_WARP
};

/*
 * How a small operation travels: through banks, in each rank's window one for operations of even
 * number and one for odd; banks.cuh, packets.cuh and small_ids.cuh say how. In a bank come
 * EPX_BANK_FLAGS flags and EPX_BANK_WORDS words with ids, of 8 bytes each, then rows of `pitch`
 * bytes, each with words that go with it, then rows in packets.
 */
enum { EPX_BANK_FLAGS = 1 << 15, EPX_BANK_WORDS = EPX_SMALL_PAIRS + 2 * EPX_SMALL_RANKS };

/* A stripe: the part of a row that a warp sends or takes in packets at once. A lane has so many
 * packs of 16 bytes, 32 packs apart, which travel in so many packets of 16. */
enum {
    EPX_LANE_PACKS = 3,
    EPX_LANE_PACKETS = 4,
    EPX_STRIPE_BYTES = 16 * EPX_LANE_PACKS * EPX_WARP,
    EPX_STRIPE_PACKETS = EPX_LANE_PACKETS * EPX_WARP
};

struct epx_banks {
    char *const *bank; /* [2][R] */
    int64_t pitch, words_at;
    struct epx_slices slices; /* of each row, the same on all ranks */
    int64_t packets_at;       /* where packets begin in a bank; 0 = rows come with flags */
    int32_t row_packets;      /* from a row's first packet to the next row's */
    int32_t stripes;          /* of a slice */
    int32_t senders;          /* blocks that store; 0 = the operation is not small */
    int32_t receivers;        /* blocks that take what comes */
    int32_t phase;            /* enum epx_phase */
};

/* Bytes that a row takes in a bank, or one field of it. */
EPX_HD int64_t epx_bytes_in_bank(int64_t row_bytes)
{
    return epx_round_up(row_bytes, 16);
}

#endif
