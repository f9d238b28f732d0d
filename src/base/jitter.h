/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * jitter.h - what --enable-jitter adds: sleeps of random length where ranks meet, and a byte
 * pattern in memory whose content nobody may count on, so that a wrong order shows as a wrong byte.
 * Without it these functions do nothing. kernels/protocol/kernel_jitter.cuh has the sleeps of
 * kernels.
 */
#ifndef EPX_BASE_JITTER_H
#define EPX_BASE_JITTER_H

#include <stddef.h>
#include <stdint.h>

#include "config.h"

enum { EPX_PATTERN = 0xeb };

#if ENABLE_JITTER
enum { EPX_JITTERS = 1 };
void epx_jitter(void);
/* The seed that this rank gives its kernels for their sleeps. */
uint64_t epx_jitter_seed(void);
void epx_poison(void *memory, size_t bytes);
/* Whether an operation on a GPU has memory filled before it; if not, its first kernel may begin
 * beside the kernel before. */
int epx_jitter_poisons(void);
#else
enum { EPX_JITTERS = 0 };

static inline void epx_jitter(void)
{
}

static inline uint64_t epx_jitter_seed(void)
{
    return 0;
}

static inline void epx_poison(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}

static inline int epx_jitter_poisons(void)
{
    return 0;
}
#endif

#endif
