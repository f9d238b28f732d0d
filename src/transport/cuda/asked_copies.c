/* SPDX-License-Identifier: BSD-3-Clause */
/* asked_copies.c - the proxy's side of the queues of copies that kernels make. */
#include "transport/cuda/asked_copies.h"

#include <string.h>

#include "base/jitter.h"
#include "transport/cuda/cuda_errors.h"

int epx_copies_open(struct epx_copies *copies)
{
    EPX_TRY_CUDA(
        cudaHostAlloc((void **)&copies->queues, sizeof(*copies->queues), cudaHostAllocPortable));
    memset(copies->queues, 0, sizeof(*copies->queues));
    return EPX_SUCCESS;
}

void epx_copies_close(struct epx_copies *copies)
{
    cudaFreeHost(copies->queues);
}

static struct epx_copy *slot_of(const struct epx_copies *copies, int queue, uint64_t copy)
{
    return &copies->queues->copy[queue][copy % EPX_COPY_SLOTS];
}

uint64_t epx_copies_asked(const struct epx_copies *copies, int queue)
{
    return copies->queues->asked[queue];
}

int epx_copies_made(struct epx_copies *copies, int queue, uint64_t number)
{
    uint64_t *made = &copies->made[queue];

    while (*made < number &&
           __atomic_load_n(&slot_of(copies, queue, *made)->made, __ATOMIC_ACQUIRE) > *made)
        ++*made;
    return *made >= number;
}

int epx_copies_ask(struct epx_copies *copies, int queue, void *to, const void *from, size_t bytes)
{
    uint64_t copy = epx_copies_asked(copies, queue);
    struct epx_copy *slot = slot_of(copies, queue, copy);

    if (!bytes)
        return EPX_SUCCESS;
    EPX_FAIL_IF(copy >= EPX_COPY_SLOTS &&
                    !epx_copies_made(copies, queue, copy - EPX_COPY_SLOTS + 1),
                EPX_ERR_INTERN, "more than %d copies are under way", EPX_COPY_SLOTS);
    slot->to = to;
    slot->from = from;
    slot->bytes = (int64_t)bytes;
    epx_jitter();
    __atomic_store_n(&copies->queues->asked[queue], copy + 1, __ATOMIC_RELEASE);
    return EPX_SUCCESS;
}

void epx_copies_end(struct epx_copies *copies, uint64_t exchange)
{
    epx_jitter();
    __atomic_store_n(&copies->queues->over, exchange, __ATOMIC_RELEASE);
}
