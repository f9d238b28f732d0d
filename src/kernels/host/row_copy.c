/* SPDX-License-Identifier: BSD-3-Clause */
/* row_copy.c - memcpy, and stores that bypass the caches where the processor has them. */
#include "kernels/host/row_copy.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { BYPASS_BYTES = 16 << 20, LINE_BYTES = 64 };

int epx_rows_bypass(int64_t bytes)
{
    return bytes >= BYPASS_BYTES;
}

#ifdef __SSE2__
/* Whole lines; `to` begins one. */
static void copy_lines(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE_BYTES)
        for (size_t j = i; j < i + LINE_BYTES; j += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(void *)(to + j),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + j)));
}

static void copy_bypassing(char *to, const char *from, size_t bytes)
{
    size_t head = -(uintptr_t)to % LINE_BYTES;
    size_t lines = (bytes - head) / LINE_BYTES * LINE_BYTES;

    memcpy(to, from, head);
    copy_lines(to + head, from + head, lines);
    memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

void epx_row_copy_fence(void)
{
    _mm_sfence();
}
#else
static void copy_bypassing(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void epx_row_copy_fence(void)
{
}
#endif

void epx_row_copy(void *to, const void *from, int64_t bytes, int bypasses)
{
    if (bypasses && bytes >= EPX_BYPASS_LEAST)
        copy_bypassing(to, from, (size_t)bytes);
    else if (bytes)
        memcpy(to, from, (size_t)bytes);
}
