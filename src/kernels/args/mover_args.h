/* SPDX-License-Identifier: BSD-3-Clause */
/* mover_args.h - how a large operation is shared out between the blocks that move rows. */
#ifndef EPX_KERNELS_ARGS_MOVER_ARGS_H
#define EPX_KERNELS_ARGS_MOVER_ARGS_H

#include "kernels/slices.h"

/*
 * How an operation that is not small is shared out between blocks: `senders` store to all ranks,
 * `receivers` take what comes. Rows go by slices. Slices, chunks and runs are the same on all
 * ranks. Where ranks exchange messages, or there is one rank, blocks are of one kind only.
 */
enum { /* most bytes of a slice, and of one that EPX_MIDDLE_WARPS move faster */
       EPX_BOX_SLICE = 29 * EPX_SLICE_QUANTUM,
       EPX_MIDDLE_SLICE = 12 * EPX_SLICE_QUANTUM,
       EPX_GRAD_SLICE = 22 * EPX_SLICE_QUANTUM /* combine backward: its warps have less room */
};

struct epx_movers {
    int32_t senders, receivers;
    int32_t phase; /* enum epx_phase */
    int32_t
        chunks;  /* where rows are added: of token numbers; a warp sends a slice of one at once */
    int32_t run; /* where not: tasks of senders in a run, which one of their warps does */
    int32_t rows_log2; /* a task has 2^rows_log2 short rows, or a slice of one row */
    int32_t warps;     /* of a block, where rows are moved as they are */
    struct epx_slices slices;
};

/* A line of the cache, and most bytes that a row takes beside its own where it is on its way in
 * shared memory, as far behind the start of a line as in memory. */
enum { EPX_LINE = 128, EPX_ROW_ENDS = 160 };

/* A bundle: the short rows that a warp of a dispatch moves at once, or one of a combine backward
 * sends. It has so many bytes, with what lies between rows, and places at most; a block of a
 * dispatch has so many warps then. */
enum { EPX_BUNDLE_BYTES = 5 * 1024, EPX_BUNDLE_PLACES = EPX_MAX_TOP_K, EPX_BUNDLE_WARPS = 16 };

/* Bytes from one short row to the next in shared memory. */
EPX_HD int64_t epx_bundle_pitch(int64_t row_bytes)
{
    return epx_round_up(row_bytes + EPX_ROW_ENDS, EPX_LINE);
}

#endif
