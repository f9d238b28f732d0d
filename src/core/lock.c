/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.c - the lock of the library's objects. */
#include "core/lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/*
 * Whoever holds the lock may take it again, many times in one call, so that must cost little.
 *   holder   writer: who has taken the mutex, or is about to give it back; 0 = nobody. A thread
 *            that reads its own number there has written it, so it holds the mutex.
 *   depth    under the mutex: how often the holder has taken the lock.
 */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uintptr_t holder;
static int depth;

void epx_lock(void)
{
    const uintptr_t self = (uintptr_t)pthread_self();

    if (atomic_load_explicit(&holder, memory_order_relaxed) != self) {
        pthread_mutex_lock(&mutex);
        atomic_store_explicit(&holder, self, memory_order_relaxed);
    }
    depth++;
}

void epx_unlock(void)
{
    if (--depth)
        return;
    atomic_store_explicit(&holder, 0, memory_order_relaxed);
    pthread_mutex_unlock(&mutex);
}
