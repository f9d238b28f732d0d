/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * known_memory.c - memory that the emulation knows. That of cudaMalloc is made so that other
 * processes can open it. New memory of a device holds a pattern.
 */
#define _GNU_SOURCE
#include "emulation/runtime/known_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pretend/pretend_blocks.h"

enum { PATTERN = 0x5a, ALIGNMENT = 512 };

struct known {
    struct range range;
    struct known *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known *all;

void memory_note(struct range range)
{
    struct known *known = malloc(sizeof(*known));

    if (!known)
        abort();
    pthread_mutex_lock(&lock);
    *known = (struct known){range, all};
    all = known;
    pthread_mutex_unlock(&lock);
}

/* Forgets memory of the kinds from first to last. Returns whether there was any. */
static int take(const void *start, enum memory_kind first, enum memory_kind last,
                struct range *range)
{
    struct known **link = &all, *known;

    pthread_mutex_lock(&lock);
    while (*link && ((*link)->range.start != start || (*link)->range.kind < first ||
                     (*link)->range.kind > last))
        link = &(*link)->next;
    known = *link;
    if (known) {
        *range = known->range;
        *link = known->next;
    }
    pthread_mutex_unlock(&lock);
    free(known);
    return known != NULL;
}

cudaError_t memory_forget(const void *start, enum memory_kind kind)
{
    struct range range;

    return take(start, kind, kind, &range) ? cudaSuccess : cudaErrorInvalidValue;
}

int memory_find(const void *address, struct range *range)
{
    const struct known *known = all;

    pthread_mutex_lock(&lock);
    for (known = all; known; known = known->next)
        if ((const char *)address >= known->range.start &&
            (const char *)address < known->range.start + known->range.bytes)
            break;
    if (known)
        *range = known->range;
    pthread_mutex_unlock(&lock);
    return known != NULL;
}

size_t memory_bytes(int device)
{
    size_t bytes = 0;

    pthread_mutex_lock(&lock);
    for (const struct known *known = all; known; known = known->next)
        if (known->range.device == device && known->range.kind < MEMORY_OPENED)
            bytes += known->range.bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}

void *memory_make(enum memory_kind kind, size_t bytes, int device)
{
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = kind == MEMORY_ALONE ? pretend_block_make(bytes)
                                        : aligned_alloc(ALIGNMENT, rounded ? rounded : ALIGNMENT);

    if (!memory)
        return NULL;
    memset(memory, PATTERN, bytes);
    memory_note((struct range){memory, bytes, kind, device});
    return memory;
}

cudaError_t memory_free(void *memory, enum memory_kind first, enum memory_kind last)
{
    struct range range;

    if (!take(memory, first, last, &range))
        return cudaErrorInvalidValue;
    if (range.kind == MEMORY_ALONE)
        pretend_block_free(memory);
    else
        free(memory);
    return cudaSuccess;
}
