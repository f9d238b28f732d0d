/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * jitter.h - --enable-jitter: sleeps of random length where ranks meet, and a pattern in memory
 * whose content nobody may count on, so that a wrong order shows as a wrong byte. Nothing else.
 */
#ifndef EPX_JITTER_H
#define EPX_JITTER_H

#include <stddef.h>

#include "config.h"

#if ENABLE_JITTER
void epx_jitter(void);
void epx_poison(void *memory, size_t bytes);
#else
static inline void epx_jitter(void)
{
}

static inline void epx_poison(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}
#endif

#endif
