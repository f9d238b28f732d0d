/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_queues.h - how the proxy has bytes copied to and from the GPU without a call of CUDA, which
 * might wait: while a thread of the user launches kernels and CUDA's queue of launches is full,
 * other threads wait for CUDA until a kernel has ended, and that may be the one that waits for the
 * proxy. So the kernels that wait for an exchange make the copies that the proxy asks for.
 *
 *   asked[q]          in pinned host memory. Writer: the proxy, how many copies it has asked for
 *                     in queue q, with a release; reader: kernels.
 *   copy[q][n % S]    copy n of queue q, from 0. Writer: the proxy, before asked; but for `made`,
 *                     n + 1 once the copy has been made: writer: the block that made its last
 *                     part; reader: the proxy.
 *   over              writer: the proxy, the last exchange of which all copies have been made, with
 *                     a release; reader: kernels, which acquire over >= n.
 *   seen_asked[q],    in device memory. Writer: the first block of a kernel, what it saw of asked
 *   seen_over         and over, behind a fence; reader: the other blocks. One block alone looks
 *                     into the host's memory: on an H200 a fence of the system takes 1 us, but 8 us
 *                     while 8 multiprocessors load from the host all the time, 26 while 16 do.
 *   claimed[q]        in device memory: which part of which copy is the next to be made. Blocks
 *                     claim parts by compare-and-swap, so any number of them may help.
 *   parts_made[q][s]  in device memory: parts of the copy in slot s that have been made.
 *
 * There are two queues because a bus carries bytes both ways at once: blocks of even number look
 * first for copies out of the GPU's memory, the others for copies into it, from the host or from
 * another place there.
 *
 * Invariant: a copy's slot is written again only after the copy was made; claimed only grows, so
 * the compare-and-swap fails if what the block has read of the slot is of an older copy. The proxy
 * says that an exchange is over after all its copies were made, so that kernels need not look
 * whether it has stopped.
 * A block leaves its kernel only after it has found nothing to copy, so at the end of a kernel all
 * that was seen is claimed: in a communicator that has ended, where no first block looks any more,
 * a later kernel copies nothing.
 *
 * tests/model/copies.pml checks this.
 */
#ifndef EPX_KERNELS_COPY_QUEUES_H
#define EPX_KERNELS_COPY_QUEUES_H

#include <stdint.h>

enum { EPX_COPY_OUT, EPX_COPY_IN, EPX_COPY_QUEUES };

/* The number of a part of a copy takes PART_BITS bits of the word claimed, the copy's the rest. */
enum { EPX_COPY_SLOTS = 512, EPX_COPY_PART_BITS = 22 };

struct epx_copy {
    char *to;
    const char *from;
    int64_t bytes; /* more than 0 */
    uint64_t made;
};

struct epx_copy_queues {
    uint64_t asked[EPX_COPY_QUEUES];
    uint64_t over;
    uint64_t unused[5]; /* fills a line */
    struct epx_copy copy[EPX_COPY_QUEUES][EPX_COPY_SLOTS];
};

struct epx_copy_progress {
    uint64_t seen_asked[EPX_COPY_QUEUES], seen_over;
    uint64_t claimed[EPX_COPY_QUEUES]; /* copy << EPX_COPY_PART_BITS | part */
    uint64_t parts_made[EPX_COPY_QUEUES][EPX_COPY_SLOTS];
};

#endif
