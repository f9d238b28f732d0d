/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - windows, and the segments that EPX_Alloc_mem made from them. */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/machine.h"

void *epx_memory_zeroed(size_t n, size_t element_bytes)
{
    size_t bytes;
    void *memory = NULL;

    if (__builtin_mul_overflow(n, element_bytes, &bytes) || bytes > epx_machine_memory())
        return NULL;
    if (bytes < (size_t)1 << 20) {
        if (posix_memalign(&memory, EPX_LINE_BYTES, bytes ? bytes : 1) == 0)
            memset(memory, 0, bytes);
        return memory;
    }
    return calloc(1, bytes); /* large: pages that are never touched cost nothing */
}

enum { ARRAYS_LISTED = 7 };

struct epx_array_list {
    void *array[ARRAYS_LISTED]; /* NULL = a free place, all of which are last */
    struct epx_array_list *next;
};

/* A free place in the list; NULL if there is no memory for one. */
static void **place_for_array(struct epx_arrays *arrays)
{
    struct epx_array_list *list = arrays->first;
    int i = 0;

    if (!list || list->array[ARRAYS_LISTED - 1]) {
        list = epx_memory_zeroed(1, sizeof(*list));
        if (!list)
            return NULL;
        list->next = arrays->first;
        arrays->first = list;
    }
    while (list->array[i])
        i++;
    return &list->array[i];
}

/* A sum that is too much for a number stays the largest one. */
static void count_bytes(struct epx_arrays *arrays, int64_t n, size_t element_bytes)
{
    uint64_t bytes;

    if (__builtin_mul_overflow((uint64_t)n, (uint64_t)element_bytes, &bytes) ||
        __builtin_add_overflow(arrays->bytes, bytes, &arrays->bytes))
        arrays->bytes = UINT64_MAX;
}

void *epx_arrays_add(struct epx_arrays *arrays, int64_t n, size_t element_bytes)
{
    void **place, *array;

    count_bytes(arrays, n, element_bytes);
    if (arrays->measures)
        return NULL;
    place = place_for_array(arrays);
    array = place ? epx_memory_zeroed((size_t)n, element_bytes) : NULL;
    if (array)
        *place = array;
    else
        arrays->failed = 1;
    return array;
}

void epx_arrays_free(struct epx_arrays *arrays)
{
    while (arrays->first) {
        struct epx_array_list *list = arrays->first;

        arrays->first = list->next;
        for (int i = 0; i < ARRAYS_LISTED; i++)
            free(list->array[i]);
        free(list);
    }
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
    if (bytes > epx_machine_memory() ||
        posix_memalign(&own, EPX_PAGE_BYTES, bytes ? bytes : 1) != 0) {
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
