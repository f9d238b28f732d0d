/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rounding.h - how the thread rounds. Sums have the same bytes whatever the caller has set: they
 * are made with rounding to nearest, and with subnormal numbers as they are.
 */
#ifndef EPX_COLL_ROUNDING_H
#define EPX_COLL_ROUNDING_H

#include <fenv.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

/* MXCSR: the rounding mode, "flush to zero" and "denormals are zero". */
#define EPX_ROUNDING_BITS UINT64_C(0xe040)

static inline uint64_t epx_rounding_read(void)
{
    return _mm_getcsr();
}

static inline void epx_rounding_write(uint64_t word)
{
    _mm_setcsr((unsigned)word);
}
#elif defined(__aarch64__)
/* FPCR: the rounding mode, "flush to zero" for float32 and wider and for float16. */
#define EPX_ROUNDING_BITS UINT64_C(0x1c80000)

static inline uint64_t epx_rounding_read(void)
{
    uint64_t word;

    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}

static inline void epx_rounding_write(uint64_t word)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(word));
}
#else
/* What C knows: the rounding mode alone. */
#define EPX_ROUNDING_BITS UINT64_MAX

static inline uint64_t epx_rounding_read(void)
{
    return (uint64_t)(fegetround() - FE_TONEAREST);
}

static inline void epx_rounding_write(uint64_t word)
{
    fesetround((int)word + FE_TONEAREST);
}
#endif

/* Begins sums; returns what the end needs. */
static inline uint64_t epx_rounding_begin(void)
{
    const uint64_t word = epx_rounding_read();

    if (word & EPX_ROUNDING_BITS)
        epx_rounding_write(word & ~EPX_ROUNDING_BITS);
    return word & EPX_ROUNDING_BITS;
}

/* Ends sums: the thread rounds again as before. Flags of exceptions that the sums raised stay. */
static inline void epx_rounding_end(uint64_t before)
{
    if (before)
        epx_rounding_write(epx_rounding_read() | before);
}

#endif
