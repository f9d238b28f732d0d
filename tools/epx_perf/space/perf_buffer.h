/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_buffer.h - memory of a space, and the image of it that the host sees: the memory itself
 * where the host can reach it, and a copy where it cannot.
 */
#ifndef EPX_PERF_BUFFER_H
#define EPX_PERF_BUFFER_H

#include <epx.h>

#include "epx_perf/space/perf_space.h"

struct perf_buffer {
    const struct perf_space *space; /* NULL: no memory */
    EPX_Comm window;                /* of EPX_Alloc_mem; EPX_COMM_NULL otherwise */
    int borrowed;
    void *address, *image;
    int64_t bytes;
};

/*
 * The memory is zeroed. With a communicator it comes from EPX_Alloc_mem: create and free are
 * collective then. With EPX_COMM_NULL it comes from the space.
 */
void perf_buffer_create(struct perf_buffer *buffer, const struct perf_space *space, int64_t bytes,
                        EPX_Comm comm);
/* A buffer over memory that somebody else owns: free leaves that memory alone. */
void perf_buffer_borrow(struct perf_buffer *buffer, const struct perf_space *space, void *memory,
                        int64_t bytes);
void perf_buffer_free(struct perf_buffer *buffer);
/* The image, whatever it holds. */
void *perf_buffer_image(struct perf_buffer *buffer);
/* Copies the image to the memory. */
void perf_buffer_send(struct perf_buffer *buffer);
/* Copies the memory to the image, and returns the image. */
void *perf_buffer_fetch(struct perf_buffer *buffer);
/* Overwrites the memory with bytes that no result has. */
void perf_buffer_poison(struct perf_buffer *buffer);

#endif
