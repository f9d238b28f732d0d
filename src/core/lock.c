/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.c - the lock of the library's objects. */
#include "core/lock.h"

#include <pthread.h>

static pthread_mutex_t mutex;
static pthread_once_t mutex_once = PTHREAD_ONCE_INIT;

static void create_mutex(void)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

void epx_lock(void)
{
    pthread_once(&mutex_once, create_mutex);
    pthread_mutex_lock(&mutex);
}

void epx_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}
