/* SPDX-License-Identifier: BSD-3-Clause */
/* flags.h - flags in shared memory that only grow: epx_flag_post releases, epx_flag_look
 * acquires. */
#ifndef EPX_BASE_FLAGS_H
#define EPX_BASE_FLAGS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/jitter.h"

static inline void epx_flag_post(_Atomic uint64_t *flag, uint64_t value)
{
    epx_jitter();
    atomic_store_explicit(flag, value, memory_order_release);
    epx_jitter();
}

static inline uint64_t epx_flag_look(_Atomic uint64_t *flag)
{
    epx_jitter();
    return atomic_load_explicit(flag, memory_order_acquire);
}

#endif
