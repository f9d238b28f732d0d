/* SPDX-License-Identifier: BSD-3-Clause */
/* count_messages.cuh - the counts of a routing by messages. */
#ifndef EPX_KERNELS_ROUTING_COUNT_MESSAGES_CUH
#define EPX_KERNELS_ROUTING_COUNT_MESSAGES_CUH

#include "kernels/wires/messages.cuh"

/* One block: every rank sends its counts to all others. */
static __device__ void post_counts(const struct epx_device_comm &c,
                                   const struct epx_device_plan &plan)
{
    int64_t bytes = epx_num_counts(&plan, c.num_ranks) * (int64_t)sizeof(int32_t);
    char *matrix = plan.counts[c.rank];

    post_exchange(c, matrix + c.rank * bytes, matrix, [&](int32_t r) {
        int64_t length = r == c.rank ? 0 : bytes;

        return epx_message{0, length, r * bytes, length};
    });
}

#endif
