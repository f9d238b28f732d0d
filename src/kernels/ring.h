/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ring.h - how kernels ask the proxy thread of their communicator for an exchange of messages, an
 * alltoallv whose counts only the GPU knows. In pinned host memory.
 *
 *   stop              writer: the proxy, when it cannot go on, and before the transport aborts, or
 *                     the host; reader: kernels that wait. Never taken back.
 *   slot[n % SLOTS]   exchange n. Writer: a kernel, everything but the number first, then that with
 *                     a release; reader: the proxy, which acquires number == n.
 *   released          in device memory. Writer: the proxy's stream, n behind the last message of
 *                     exchange n; reader: kernels, which acquire released >= n. Where kernels make
 *                     the copies of exchanges, `over` of copy_queues.h takes its place.
 *
 * Invariant: kernels of a communicator run one after the other and each exchange is awaited before
 * the next is posted, on all ranks the same ones, whether a rank takes part with any other or not:
 * so the proxies see exchanges 1, 2, 3, ... with counts that match, and no slot is written before
 * its last exchange was released. Two ranks that take no part with each other may be any number of
 * exchanges apart. A kernel that gives up ends the communicator: nothing is posted after that. What
 * the transport aborted may be released all the same: a kernel that acquired released looks at stop
 * before it takes what came.
 *
 * tests/model/proxy.pml checks this.
 */
#ifndef EPX_KERNELS_RING_H
#define EPX_KERNELS_RING_H

#include "kernels/layout.h"

enum { EPX_RING_SLOTS = 4, EPX_RING_LINE = 64 };

/* What goes to and comes from one rank, in bytes from the start of the buffers. */
struct epx_message {
    int64_t send_at, send_bytes, recv_at, recv_bytes;
};

/* Two ranks take part in an exchange with each other if bytes go either way; both know it. */
EPX_HD int epx_message_takes_part(const struct epx_message *message)
{
    return message->send_bytes || message->recv_bytes;
}

struct epx_exchange {
    uint64_t number; /* from 1 */
    char *send, *recv;
    char *stamp;   /* the number in device memory: the last eight bytes to a rank that takes part */
    char *arrived; /* [R] words of eight bytes where the stamps of the ranks arrive, or other words
                      that grow as ranks answer: the least word tells who did not */
    struct epx_message message[]; /* [R] */
};

EPX_HD size_t epx_ring_slot_bytes(int32_t num_ranks)
{
    return (size_t)epx_round_up(
        (int64_t)(sizeof(struct epx_exchange) + (size_t)num_ranks * sizeof(struct epx_message)),
        EPX_RING_LINE);
}

EPX_HD size_t epx_ring_bytes(int32_t num_ranks)
{
    return EPX_RING_LINE + EPX_RING_SLOTS * epx_ring_slot_bytes(num_ranks);
}

EPX_HD uint64_t *epx_ring_stop(char *ring)
{
    return (uint64_t *)(void *)ring;
}

EPX_HD struct epx_exchange *epx_ring_slot(char *ring, int32_t num_ranks, uint64_t number)
{
    return (struct epx_exchange *)(void *)(ring + EPX_RING_LINE +
                                           number % EPX_RING_SLOTS *
                                               epx_ring_slot_bytes(num_ranks));
}

/* Posts an exchange: the last step of its writer. */
EPX_HD void epx_ring_post(struct epx_exchange *slot, uint64_t number)
{
#ifdef __CUDA_ARCH__
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(&slot->number), "l"(number)
                 : "memory");
#else
    __atomic_store_n(&slot->number, number, __ATOMIC_RELEASE);
#endif
}

#ifndef __CUDACC__
/* The exchange if it was posted, else NULL; for the proxy. */
static inline const struct epx_exchange *epx_ring_look(char *ring, int32_t num_ranks,
                                                       uint64_t number)
{
    const struct epx_exchange *slot = epx_ring_slot(ring, num_ranks, number);

    return __atomic_load_n(&slot->number, __ATOMIC_ACQUIRE) == number ? slot : NULL;
}
#endif

#endif
