/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * buffer.h - user buffers between canaries, each with an image of what it must hold after the
 * operation: inputs what they held before, outputs what the reference writes.
 */
#ifndef BUFFER_H
#define BUFFER_H

#include "epx.h"

/* A buffer begins at an offset that differs by rank; one of MEMORY_MALLOC at another one than
 * others, but on ranks 0, 3, 6, ... */
enum memory {
    MEMORY_MALLOC,
    MEMORY_WINDOW, /* EPX_Alloc_mem */
    MEMORY_MIXED   /* a window on even ranks, malloc on odd ones */
};

struct buffer {
    void *address; /* what EPX is given; NULL where the buffer is absent */
    void *data;    /* its image in host memory; address itself on a host communicator */
    void *expected;
    size_t bytes;
    unsigned char *block, *place; /* with canaries: block is the image, place what it is an image
                                   * of */
    size_t block_bytes, shift;
    void *window;
    EPX_Comm comm;
};

/* Collective, except for malloc; bytes may differ by rank. Both images hold the canary pattern. */
int buffer_create(struct buffer *buffer, size_t bytes, size_t element, enum memory memory,
                  EPX_Comm comm);
/* Takes what the image holds now as what it must hold. */
void buffer_freeze(struct buffer *buffer);
/* Copies the memory into the image. */
void buffer_fetch(const struct buffer *buffer);
/* Fills both images with the canary pattern again. */
void buffer_reset(struct buffer *buffer);
/* Expects every byte, those of the canaries too, to be what it must be. */
int buffer_check(const struct buffer *buffer, const char *what);
/* Collective where buffer_create was. Takes a buffer that was never created. */
void buffer_free(struct buffer *buffer);

#endif
