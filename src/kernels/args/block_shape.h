/* SPDX-License-Identifier: BSD-3-Clause */
/* block_shape.h - the threads and warps of a block, and how many blocks do what. */
#ifndef EPX_KERNELS_ARGS_BLOCK_SHAPE_H
#define EPX_KERNELS_ARGS_BLOCK_SHAPE_H

#include <stdint.h>

enum {
    EPX_WAITING_THREADS = 512, /* in a block that may wait for other ranks */
    EPX_WARP = 32
};

/* Most blocks of a large operation that store, and most that count as few; warps in a block that
 * moves rows one by one: long ones, not so long ones, and where blocks are few long ones of one
 * field or of several; warps in one that adds rows, or adds them through rings. */
enum {
    EPX_MOST_SENDERS = 64,
    EPX_FEW_SENDERS = 33,
    EPX_MOVING_WARPS = 8,
    EPX_MIDDLE_WARPS = 16,
    EPX_CROWDED_WARPS = 14,
    EPX_CROWDED_LIST_WARPS = 13,
    EPX_ADDING_WARPS = 16,
    EPX_RING_WARPS = 20
};

#endif
