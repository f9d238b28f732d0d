/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h - the time, in nanoseconds since some moment, and when a bounded wait ends. */
#ifndef EPX_BASE_CLOCK_H
#define EPX_BASE_CLOCK_H

#include <stdint.h>

#define EPX_NS_PER_MS 1000000LL

int64_t epx_now_ns(void);

/* The end of a wait of this many milliseconds that begins now. */
int64_t epx_deadline_in(int64_t ms);
int epx_deadline_is_over(int64_t deadline_ns);

/* The shorter of a grace period and epx_timeout_ms; a timeout_ms of 0 is no bound. */
int64_t epx_shorter_ms(int64_t grace_ms, int64_t timeout_ms);

#endif
