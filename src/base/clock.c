/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.c - the time, in nanoseconds since some moment, and when a bounded wait ends. */
#include "base/clock.h"

#include <time.h>

int64_t epx_now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t epx_deadline_in(int64_t ms)
{
    return epx_now_ns() + ms * EPX_NS_PER_MS;
}

int epx_deadline_is_over(int64_t deadline_ns)
{
    return epx_now_ns() >= deadline_ns;
}

int64_t epx_shorter_ms(int64_t grace_ms, int64_t timeout_ms)
{
    return timeout_ms && timeout_ms < grace_ms ? timeout_ms : grace_ms;
}
