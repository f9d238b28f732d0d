/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copies.cuh - blocks that wait for an exchange of messages make the copies that the proxy asks for
 * meanwhile. kernels/copy_queues.h has the protocol.
 */
#ifndef EPX_KERNELS_WIRES_COPIES_CUH
#define EPX_KERNELS_WIRES_COPIES_CUH

#include "kernels/protocol/waits.cuh"
#include "kernels/ring.h"

/* Blocks that can keep a bus busy, and what one of them copies at a time. */
enum { EPX_COPYING_BLOCKS = 16, EPX_COPY_PART_BYTES = 1 << 17 };

/* The blocks of a kernel that does nothing but wait for messages, or one of whose blocks does. */
static inline unsigned epx_blocks_for_messages(const struct epx_device_comm &comm)
{
    if (!comm.copies)
        return 1;
    return (unsigned)(comm.blocks < EPX_COPYING_BLOCKS ? comm.blocks : EPX_COPYING_BLOCKS);
}

#ifdef __CUDACC__

/* What a block that waits does next; in shared memory. */
enum errand { ERRAND_NONE, ERRAND_COPY, ERRAND_OVER, ERRAND_GIVEN_UP };

struct part_of_copy {
    enum errand errand;
    const char *from;
    char *to;
    int64_t bytes;
    uint64_t number, parts; /* of the copy */
    int32_t queue;
};

/* Whether the proxy, or the host, has stopped all exchanges; if so sets the abort word. */
static __device__ bool proxy_stopped(const struct epx_device_comm &c)
{
    if (!load_relaxed_sys(epx_ring_stop(c.ring)))
        return false;
    give_up(c, EPX_ABORT_BY_HOST, c.rank);
    return true;
}

/* Whether the wait may go on; looks now and then whether the proxy has given up. */
static __device__ bool keep_waiting_for_proxy(const struct epx_device_comm &c,
                                              struct patience &patience)
{
    if (patience.spins % 128 == 0 && proxy_stopped(c))
        return false;
    return keep_waiting(c, patience, c.rank);
}

/* One thread: claims a part of the oldest copy of a queue that has parts left. */
static __device__ bool claim_part(const struct epx_device_comm &c, int32_t queue,
                                  struct part_of_copy &part)
{
    uint64_t *word = &c.state->copies.claimed[queue];
    uint64_t asked = load_acquire_gpu(&c.state->copies.seen_asked[queue]);
    uint64_t claimed = load_acquire_gpu(word), number = claimed >> EPX_COPY_PART_BITS;
    const struct epx_copy &copy = c.copies->copy[queue][number % EPX_COPY_SLOTS];
    int64_t at = (int64_t)(claimed & ((1 << EPX_COPY_PART_BITS) - 1)) * EPX_COPY_PART_BYTES, left;
    uint64_t next;

    if (number >= asked)
        return false;
    EPX_DELAY(c);
    left = copy.bytes - at;
    part = {ERRAND_COPY, copy.from + at, copy.to + at, left, number, 0, queue};
    part.parts = (uint64_t)((copy.bytes + EPX_COPY_PART_BYTES - 1) / EPX_COPY_PART_BYTES);
    part.bytes = left < EPX_COPY_PART_BYTES ? left : EPX_COPY_PART_BYTES;
    next = left > EPX_COPY_PART_BYTES ? claimed + 1 : (number + 1) << EPX_COPY_PART_BITS;
    EPX_DELAY(c);
    return atomicCAS_system((unsigned long long *)word, (unsigned long long)claimed,
                            (unsigned long long)next) == claimed;
}

/* One thread of the first block: tells the others what the proxy has asked for. */
static __device__ void show_what_is_asked(const struct epx_device_comm &c)
{
    struct epx_copy_progress &copies = c.state->copies;
    uint64_t over = load_relaxed_sys(&c.copies->over), asked[EPX_COPY_QUEUES];

    load_two_relaxed_sys(c.copies->asked, asked[0], asked[1]);
    if (over == copies.seen_over && asked[0] == copies.seen_asked[0] &&
        asked[1] == copies.seen_asked[1])
        return;
    EPX_DELAY(c);
    fence_sys();
    store_relaxed_sys(&copies.seen_asked[0], asked[0]);
    store_relaxed_sys(&copies.seen_asked[1], asked[1]);
    store_relaxed_sys(&copies.seen_over, over);
}

/* One thread: looks for something to copy; blocks that would be too many do not. */
static __device__ void look_for_copy(const struct epx_device_comm &c, struct part_of_copy &part)
{
    if (blockIdx.x == 0)
        show_what_is_asked(c);
    for (uint32_t i = 0; i < EPX_COPY_QUEUES && blockIdx.x < EPX_COPYING_BLOCKS; i++)
        if (claim_part(c, (int32_t)((blockIdx.x + i) % EPX_COPY_QUEUES), part))
            return;
    part.errand = ERRAND_NONE;
}

/* One thread: the part was copied; tells the proxy if it was the copy's last. That one's fence is
 * for all parts, which were counted behind what they stored: a fence of the system for each would
 * wait for what all other blocks load from the host. */
static __device__ void end_part(const struct epx_device_comm &c, const struct part_of_copy &part)
{
    uint64_t slot = part.number % EPX_COPY_SLOTS;
    uint64_t *made = &c.state->copies.parts_made[part.queue][slot];

    EPX_DELAY(c);
    if (fetch_add_acq_rel_gpu(made, 1) + 1 < part.parts)
        return;
    *made = 0;
    EPX_DELAY(c);
    fence_sys();
    store_relaxed_sys(&c.copies->copy[part.queue][slot].made, part.number + 1);
}

/* The whole block: copies words whose addresses are multiples of their length. */
static __device__ void copy_words(char *to, const char *from, int64_t bytes)
{
    const int32_t BATCH = 8; /* loads under way at once */
    const int64_t words = bytes / 16;
    const uint4 *source = (const uint4 *)(const void *)from;
    uint4 *target = (uint4 *)(void *)to;

    for (int64_t first = threadIdx.x; first < words; first += BATCH * (int64_t)blockDim.x) {
        uint4 data[BATCH];

#pragma unroll
        for (int32_t j = 0; j < BATCH; j++)
            if (first + j * (int64_t)blockDim.x < words)
                data[j] = source[first + j * (int64_t)blockDim.x];
#pragma unroll
        for (int32_t j = 0; j < BATCH; j++)
            if (first + j * (int64_t)blockDim.x < words)
                target[first + j * (int64_t)blockDim.x] = data[j];
    }
}

/* The whole block: copies to a multiple of 4 from any address; reads the multiples of 4 that have
 * any of these bytes. */
static __device__ void copy_shifted(char *to, const char *from, int64_t bytes)
{
    const uint32_t odd = (uint32_t)(uintptr_t)from & 3u;
    const uint32_t *source = (const uint32_t *)(const void *)(from - odd);
    uint32_t *target = (uint32_t *)(void *)to;

#pragma unroll 4
    for (int64_t i = threadIdx.x; i < bytes / 4; i += blockDim.x)
        target[i] = __funnelshift_r(source[i], odd ? source[i + 1] : 0, odd * 8);
}

/* The whole block: copies bytes of any alignment. */
static __device__ void copy_part(const struct part_of_copy &part)
{
    bool alike = (((uintptr_t)part.from ^ (uintptr_t)part.to) & 15) == 0;
    int64_t unit = alike ? 16 : 4, head = (int64_t)(-(uintptr_t)part.to & (uintptr_t)(unit - 1));
    int64_t body, tail, i = threadIdx.x;

    head = head < part.bytes ? head : part.bytes;
    body = (part.bytes - head) / unit * unit;
    tail = part.bytes - head - body;
    if (i < head)
        part.to[i] = part.from[i];
    if (i < tail)
        part.to[head + body + i] = part.from[head + body + i];
    if (alike)
        copy_words(part.to + head, part.from + head, body);
    else
        copy_shifted(part.to + head, part.from + head, body);
}

/* The whole block: makes copies until one thread's attempts to find an errand find another one,
 * which is returned. */
template <typename Attempt>
static __device__ EPX_COLD enum errand copy_until(const struct epx_device_comm &c, Attempt attempt)
{
    __shared__ struct part_of_copy part;
    enum errand errand;

    EPX_DELAY(c);
    do {
        if (threadIdx.x == 0) {
            do {
                attempt(part);
            } while (part.errand == ERRAND_NONE);
        }
        __syncthreads();
        errand = part.errand;
        if (errand == ERRAND_COPY)
            copy_part(part);
        __syncthreads();
        if (threadIdx.x == 0 && errand == ERRAND_COPY)
            end_part(c, part);
    } while (errand == ERRAND_COPY);
    return errand;
}

/* The whole block: makes copies until an exchange is over; false if it was given up. */
static __device__ bool copy_until_over(const struct epx_device_comm &c, uint64_t number)
{
    struct patience patience = {0, 0};

    return copy_until(c, [&](struct part_of_copy &part) {
               look_for_copy(c, part);
               if (part.errand != ERRAND_NONE)
                   return;
               if (load_acquire_gpu(&c.state->copies.seen_over) >= number)
                   part.errand = ERRAND_OVER;
               else if (blockIdx.x ? !keep_waiting(c, patience, c.rank)
                                   : !keep_waiting_for_proxy(c, patience))
                   part.errand = ERRAND_GIVEN_UP;
           }) == ERRAND_OVER;
}

/* A block beside the one that posts exchanges and waits for them, from its start: makes copies
 * until that block has come to its end. */
static __device__ void copy_until_end(const struct epx_device_comm &c)
{
    copy_until(c, [&](struct part_of_copy &part) {
        bool ended = load_acquire_gpu(&c.state->ended) != 0;

        part.errand = ERRAND_NONE;
        if (!aborted(c))
            look_for_copy(c, part);
        if (part.errand == ERRAND_NONE && ended)
            part.errand = ERRAND_OVER;
    });
}

#endif

#endif
