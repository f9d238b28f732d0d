/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * messages.cuh - kernels of ranks that cannot store into each other's memory: they post an
 * exchange of messages, which the proxy moves, and wait for it. ring.h has the protocol.
 */
#ifndef EPX_KERNELS_WIRES_MESSAGES_CUH
#define EPX_KERNELS_WIRES_MESSAGES_CUH

#include "kernels/protocol/protocol.cuh"
#include "kernels/wires/copies.cuh"

#ifdef __CUDACC__

/*
 * One block, which sees what all others have stored: posts the next exchange, whose messages
 * message_of tells for each rank. Of itself, and of a rank that takes no part, it notes that they
 * have answered; where kernels make the copies of exchanges, all ranks take part.
 */
template <typename Messages>
static __device__ void post_exchange(const struct epx_device_comm &c, char *send, char *recv,
                                     Messages message_of)
{
    uint64_t number = c.state->exchanges.num + 1;
    struct epx_exchange *slot = epx_ring_slot(c.ring, c.num_ranks, number);

    EPX_DELAY(c);
    for (int32_t r = (int32_t)threadIdx.x; r < c.num_ranks; r += (int32_t)blockDim.x) {
        const struct epx_message message = message_of(r);

        slot->message[r] = message;
        if (!c.copies && (r == c.rank || !epx_message_takes_part(&message)))
            store_relaxed_sys(epx_control_arrived(c.own_control, r), number);
    }
    fence_sys();
    __syncthreads();
    if (threadIdx.x == 0) {
        slot->send = send;
        slot->recv = recv;
        slot->stamp = (char *)&c.state->exchanges.num;
        slot->arrived = (char *)epx_control_arrived(c.own_control, 0);
        c.state->exchanges.num = number;
        c.state->exchanges.posted_ns = global_timer_ns();
        EPX_DELAY(c);
        fence_sys();
        epx_ring_post(slot, number);
    }
    __syncthreads();
}

static __device__ void note_wait(struct epx_device_exchanges &all)
{
    uint64_t waited = global_timer_ns() - all.posted_ns;

    all.waited_ns += waited;
    if (all.least_ns == 0 || waited < all.least_ns)
        all.least_ns = waited;
}

/* One thread: waits until the proxy has released an exchange. */
static __device__ bool await_release(const struct epx_device_comm &c, uint64_t number)
{
    struct patience patience = {0, 0};

    EPX_DELAY(c);
    while (load_acquire_sys(c.released) < number)
        if (!keep_waiting_for_proxy(c, patience))
            return false;
    EPX_DELAY(c);
    return !proxy_stopped(c);
}

/* The whole block: waits for an exchange, and makes copies for it if the proxy asks for any; false
 * in a thread that knows that the operation was given up. */
static __device__ bool await_number(const struct epx_device_comm &c, uint64_t number)
{
    bool ok;

    if (c.copies)
        ok = copy_until_over(c, number);
    else
        ok = threadIdx.x || await_release(c, number);
    if (ok && blockIdx.x == 0 && threadIdx.x == 0)
        note_wait(c.state->exchanges);
    return ok;
}

/* The block that posted the last exchange waits for it. */
static __device__ bool await_exchange(const struct epx_device_comm &c, struct exchange &x)
{
    return all_content(c, x, await_number(c, c.state->exchanges.num));
}

/*
 * One block: every rank sends its ready words, as they lie in the control window, to the ranks for
 * which takes_part holds, on both sides, and takes its own words for those of the others. Returns
 * whether they have come.
 */
template <typename TakesPart>
static __device__ bool exchange_words(const struct epx_device_comm &c,
                                      const struct epx_ready_note &note, int32_t routing_error,
                                      struct exchange &x, TakesPart takes_part)
{
    const int64_t words = EPX_READY_WORDS, bytes = words * (int64_t)sizeof(uint64_t);
    uint64_t *all, *own;

    begin_exchange(c, note, routing_error, look_first(c), x);
    if (x.outcome.code != EPX_SUCCESS)
        return false;
    all = epx_control_ready(c.own_control, c.num_ranks, (uint32_t)x.epoch, 0);
    own = epx_control_ready(c.own_control, c.num_ranks, (uint32_t)x.epoch, c.rank);
    __syncthreads();
    post_exchange(c, (char *)own, (char *)all, [&](int32_t r) {
        bool goes = r != c.rank && takes_part(r);

        for (int32_t i = 0; !goes && r != c.rank && i < words; i++)
            all[r * words + i] = own[i];
        return epx_message{0, goes ? bytes : 0, r * bytes, goes ? bytes : 0};
    });
    return await_exchange(c, x);
}

/* One block: all ranks tell all others their ready words. Returns whether they agree, as
 * await_ready does. */
static __device__ bool exchange_ready(const struct epx_device_comm &c,
                                      const struct epx_ready_note &note,
                                      const struct epx_outcome *routing, struct exchange &x)
{
    return exchange_words(c, note, routing ? routing->code : EPX_SUCCESS, x,
                          [](int32_t) { return true; }) &&
           await_ready(c, note, x, routing);
}

#endif

#endif
