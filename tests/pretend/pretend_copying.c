/* SPDX-License-Identifier: BSD-3-Clause */
/* pretend_copying.c - makes the copies of copy_queues.h as kernels do, on the thread that calls. */
#include "pretend/pretend_copying.h"

#include <stdlib.h>
#include <string.h>

static int is_left(const struct epx_copy *copy, uint64_t number)
{
    return __atomic_load_n(&copy->made, __ATOMIC_ACQUIRE) <= number;
}

static void make_some(struct epx_copy_queues *queues, int queue, int all)
{
    uint64_t asked = __atomic_load_n(&queues->asked[queue], __ATOMIC_ACQUIRE);
    uint64_t oldest = asked > EPX_COPY_SLOTS ? asked - EPX_COPY_SLOTS : 0;

    for (uint64_t number = oldest; number < asked; number++) {
        struct epx_copy *copy = &queues->copy[queue][number % EPX_COPY_SLOTS];

        if (!is_left(copy, number) || (!all && rand() % 4 == 0))
            continue;
        memcpy(copy->to, copy->from, (size_t)copy->bytes);
        __atomic_store_n(&copy->made, number + 1, __ATOMIC_RELEASE);
    }
}

void pretend_make_copies(struct epx_copy_queues *queues, int all)
{
    int first = rand() % EPX_COPY_QUEUES;

    for (int i = 0; i < EPX_COPY_QUEUES; i++)
        make_some(queues, (first + i) % EPX_COPY_QUEUES, all);
}
