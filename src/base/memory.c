/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - windows, and the segments that EPX_Alloc_mem made from them. */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void *epx_memory_zeroed(size_t n, size_t element_bytes)
{
    size_t bytes;
    void *memory = NULL;

    if (__builtin_mul_overflow(n, element_bytes, &bytes) || bytes > PTRDIFF_MAX)
        return NULL;
    if (bytes < (size_t)1 << 20) {
        if (posix_memalign(&memory, EPX_LINE_BYTES, bytes ? bytes : 1) == 0)
            memset(memory, 0, bytes);
        return memory;
    }
    return calloc(1, bytes); /* large: pages that are never touched cost nothing */
}

void *epx_arrays_add(struct epx_arrays *arrays, int64_t n, size_t element_bytes)
{
    const int most = (int)(sizeof(arrays->array) / sizeof(arrays->array[0]));
    void *array = arrays->num < most ? epx_memory_zeroed((size_t)n, element_bytes) : NULL;

    if (array)
        arrays->array[arrays->num++] = array;
    else
        arrays->failed = 1;
    return array;
}

void epx_arrays_free(struct epx_arrays *arrays)
{
    while (arrays->num > 0)
        free(arrays->array[--arrays->num]);
}

struct epx_window *epx_window_empty(int num_ranks)
{
    struct epx_window *window = calloc(1, sizeof(*window));

    if (!window)
        return NULL;
    window->num_ranks = num_ranks;
    window->address = calloc((size_t)num_ranks, sizeof(*window->address));
    if (!window->address) {
        epx_window_free(window);
        return NULL;
    }
    return window;
}

struct epx_window *epx_window_private(int num_ranks, int rank, size_t bytes)
{
    struct epx_window *window = epx_window_empty(num_ranks);
    void *own = NULL;

    if (!window)
        return NULL;
    if (bytes > PTRDIFF_MAX || posix_memalign(&own, EPX_PAGE_BYTES, bytes ? bytes : 1) != 0) {
        epx_window_free(window);
        return NULL;
    }
    window->own = own;
    window->own_bytes = bytes;
    window->address[rank] = own;
    return window;
}

void epx_window_free(struct epx_window *window)
{
    if (!window)
        return;
    free(window->own);
    free(window->address);
    free(window);
}

const struct epx_segment *epx_segment_find(const struct epx_segment *list, const void *buffer,
                                           size_t bytes, int64_t *offset)
{
    for (const struct epx_segment *s = list; s; s = s->next) {
        uintptr_t base = (uintptr_t)s->window->own, start = (uintptr_t)buffer;

        if (start >= base && start - base <= s->bytes && bytes <= s->bytes - (start - base)) {
            *offset = (int64_t)(start - base);
            return s;
        }
    }
    return NULL;
}

const struct epx_segment *epx_segment_of_id(const struct epx_segment *list, int64_t id)
{
    while (list && list->id != id)
        list = list->next;
    return list;
}

int epx_memory_overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;

    if (!a || !b || a_bytes == 0 || b_bytes == 0)
        return 0;
    return first < second ? second - first < a_bytes : first - second < b_bytes;
}
