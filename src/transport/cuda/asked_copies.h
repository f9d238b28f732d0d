/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * asked_copies.h - copies to, from and on the GPU that the proxy's thread asks for and kernels that
 * wait for an exchange make. kernels/copy_queues.h has the protocol. All calls but the first two
 * are of one thread, and none of them calls CUDA.
 */
#ifndef EPX_TRANSPORT_CUDA_ASKED_COPIES_H
#define EPX_TRANSPORT_CUDA_ASKED_COPIES_H

#include <stddef.h>

#include "kernels/copy_queues.h"

struct epx_copies {
    struct epx_copy_queues *queues; /* in pinned memory */
    uint64_t made[EPX_COPY_QUEUES]; /* so many of the first copies are known to have been made */
};

/* Local, on the current device; takes zeroed memory. */
int epx_copies_open(struct epx_copies *copies);
/* Local; only when no kernel is in flight. Takes what was zeroed. */
void epx_copies_close(struct epx_copies *copies);

/* Asks for a copy. Its memory stays as it is until the copy was made; host memory is pinned. Asks
 * for nothing if bytes is 0. */
int epx_copies_ask(struct epx_copies *copies, int queue, void *to, const void *from, size_t bytes);
/* How many copies of a queue were asked for so far. */
uint64_t epx_copies_asked(const struct epx_copies *copies, int queue);
/* Whether so many of the first copies of a queue have been made. */
int epx_copies_made(struct epx_copies *copies, int queue, uint64_t number);
/* All copies of an exchange have been made: the kernels that wait for it may go on. */
void epx_copies_end(struct epx_copies *copies, uint64_t exchange);

#endif
