/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.h - windows, and the segments that EPX_Alloc_mem made from them. */
#ifndef EPX_BASE_MEMORY_H
#define EPX_BASE_MEMORY_H

#include "base/status.h"

enum { EPX_PAGE_BYTES = 4096, EPX_LINE_BYTES = 64 };

/* Memory of this rank; the other ranks can store into it if the transport has windows. */
struct epx_window {
    int num_ranks;
    char **address; /* [num_ranks] where each rank's part is mapped here; NULL = not reachable */
    char *own;
    size_t own_bytes;
    void *mapping; /* used by the transport alone */
    size_t mapping_bytes;
    int number;            /* device memory: the same on all ranks */
    char **device_address; /* device memory: the addresses where kernels find them */
    struct epx_window *next;
};

struct epx_segment {
    int id;        /* the same on all ranks */
    size_t bytes;  /* of this rank's part */
    int reachable; /* the other ranks can store into it */
    int is_spare;  /* private memory: the transport had no window */
    struct epx_window *window;
    struct epx_segment *next;
};

/* A window in private memory, not yet touched: no other rank reaches it. NULL if there is too
 * little memory. */
struct epx_window *epx_window_private(int num_ranks, int rank, size_t bytes);
struct epx_window *epx_window_empty(int num_ranks);
/* Frees a window and its private memory; a transport unmaps its own and clears it first. */
void epx_window_free(struct epx_window *window);

/* Whether [buffer, buffer + bytes) lies in a segment, and where. */
const struct epx_segment *epx_segment_find(const struct epx_segment *list, const void *buffer,
                                           size_t bytes, int64_t *offset);
const struct epx_segment *epx_segment_of_id(const struct epx_segment *list, int64_t id);

/* Whether two buffers share a byte. */
int epx_memory_overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes);

/* Arrays that are freed together. */
struct epx_arrays {
    struct epx_array_list *first; /* the last few; the others follow */
    uint64_t bytes;               /* of all arrays */
    int failed;                   /* one of them could not be had */
    int measures;                 /* only counts the bytes: the arrays are NULL */
};

/* Adds a zeroed array of n elements, as epx_memory_zeroed; counts its bytes, notes a failure. */
void *epx_arrays_add(struct epx_arrays *arrays, int64_t n, size_t element_bytes);
void epx_arrays_free(struct epx_arrays *arrays);

/* Gives a member its array. */
#define EPX_ARRAY(arrays, member, n) ((member) = epx_arrays_add(arrays, n, sizeof(*(member))))

/* Zeroed memory for n elements, 64-byte aligned; never NULL for n = 0; NULL for more than the
 * machine has, whatever it promises. Freed with free(). */
void *epx_memory_zeroed(size_t n, size_t element_bytes);

#endif
