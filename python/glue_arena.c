/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_arena.c - windows of a communicator, and the parts of them that tensors have.
 *
 * All ranks together make an arena, which is a window of EPX, and free it; glue_reserve.c has that.
 * Any thread takes parts of it and gives them back without the other ranks, after MPI_Finalize too:
 * that touches the list of blocks alone, never the window. The blocks of an arena cover it in the
 * order of their addresses, and no two free ones are neighbours.
 */
#include "glue.h"

#include <pthread.h>
#include <stdlib.h>

struct epx_python_block {
    struct epx_python_arena *arena;
    struct epx_python_block *before, *after;
    char *data;
    size_t bytes;
    int is_used;
};

struct epx_python_arena {
    struct epx_python_arena *next;
    int64_t comm;
    char *window;
    size_t bytes; /* of all blocks */
    int device;   /* that the window lies on; -1 = the host, or not known */
    int is_sealed;
    int64_t num_used;
    int64_t used_bytes;
    int64_t num_refused; /* parts that did not fit, in the communicator's first arena */
    struct epx_python_block *first;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* The arenas of a communicator are in the order in which they were made. */
static struct epx_python_arena *arenas;

static struct epx_python_arena *first_of(int64_t comm, struct epx_python_arena *from)
{
    while (from && from->comm != comm)
        from = from->next;
    return from;
}

static size_t rounded_up(int64_t bytes)
{
    return ((size_t)bytes + EPX_PYTHON_ALIGNMENT - 1) / EPX_PYTHON_ALIGNMENT * EPX_PYTHON_ALIGNMENT;
}

/* An arena that has no window yet, of so many bytes, which are rounded up; NULL without memory. */
struct epx_python_arena *epx_python_arena_new(int64_t comm, int64_t *bytes)
{
    struct epx_python_arena *arena = calloc(1, sizeof(*arena));
    struct epx_python_block *block = calloc(1, sizeof(*block));

    if (!arena || !block) {
        free(arena);
        free(block);
        return NULL;
    }
    *bytes = (int64_t)rounded_up(*bytes);
    arena->comm = comm;
    arena->bytes = block->bytes = (size_t)*bytes;
    arena->first = block;
    block->arena = arena;
    return arena;
}

/* From now on parts of the window can be taken. */
void epx_python_arena_open(struct epx_python_arena *arena, void *window, int device)
{
    struct epx_python_arena **link = &arenas;

    arena->window = arena->first->data = window;
    arena->device = device;
    pthread_mutex_lock(&mutex);
    while (*link)
        link = &(*link)->next;
    *link = arena;
    pthread_mutex_unlock(&mutex);
}

/* The communicator's first arena, or NULL. */
struct epx_python_arena *epx_python_arena_first(int64_t comm)
{
    struct epx_python_arena *arena;

    pthread_mutex_lock(&mutex);
    arena = first_of(comm, arenas);
    pthread_mutex_unlock(&mutex);
    return arena;
}

void *epx_python_arena_window(const struct epx_python_arena *arena)
{
    return arena->window;
}

static void unlist(const struct epx_python_arena *arena)
{
    struct epx_python_arena **link = &arenas;

    pthread_mutex_lock(&mutex);
    while (*link && *link != arena)
        link = &(*link)->next;
    if (*link)
        *link = arena->next;
    pthread_mutex_unlock(&mutex);
}

/* Takes an arena that was never opened, too. The window is the caller's. */
void epx_python_arena_free(struct epx_python_arena *arena)
{
    unlist(arena);
    while (arena->first) {
        struct epx_python_block *block = arena->first;

        arena->first = block->after;
        free(block);
    }
    free(arena);
}

static int may_use(const struct epx_python_arena *arena, int64_t comm, int device)
{
    return arena->comm == comm && !arena->is_sealed &&
           (device == arena->device || arena->device < 0);
}

/* The smallest free block with room, so that large ones stay; NULL if there is none. */
static struct epx_python_block *find_room(int64_t comm, size_t bytes, int device)
{
    struct epx_python_block *best = NULL;

    for (struct epx_python_arena *arena = arenas; arena; arena = arena->next)
        for (struct epx_python_block *block = arena->first; block; block = block->after)
            if (!block->is_used && block->bytes >= bytes && may_use(arena, comm, device) &&
                (!best || block->bytes < best->bytes))
                best = block;
    return best;
}

/* Cuts a free block after so many bytes; without memory for the rest it stays whole. */
static void cut(struct epx_python_block *block, size_t bytes)
{
    struct epx_python_block *rest = block->bytes > bytes ? calloc(1, sizeof(*rest)) : NULL;

    if (!rest)
        return;
    rest->arena = block->arena;
    rest->data = block->data + bytes;
    rest->bytes = block->bytes - bytes;
    rest->before = block;
    rest->after = block->after;
    if (rest->after)
        rest->after->before = rest;
    block->after = rest;
    block->bytes = bytes;
}

static void use(struct epx_python_block *block, size_t bytes)
{
    cut(block, bytes);
    block->is_used = 1;
    block->arena->num_used++;
    block->arena->used_bytes += (int64_t)block->bytes;
}

/* A part of an arena of the communicator, on that device, for any device -1; NULL for 0 bytes, and
 * if none has room. Local. */
struct epx_python_block *epx_python_take(int64_t comm, int64_t bytes, int device)
{
    struct epx_python_block *block = NULL;
    struct epx_python_arena *first;
    size_t rounded;

    if (bytes <= 0 || bytes > INT64_MAX - EPX_PYTHON_ALIGNMENT)
        return NULL;
    rounded = rounded_up(bytes);
    pthread_mutex_lock(&mutex);
    first = first_of(comm, arenas);
    if (first)
        block = find_room(comm, rounded, device);
    if (block)
        use(block, rounded);
    else if (first)
        first->num_refused++;
    pthread_mutex_unlock(&mutex);
    return block;
}

void *epx_python_block_data(const struct epx_python_block *block)
{
    return block->data;
}

/* The block takes in the one behind it. */
static void join(struct epx_python_block *block)
{
    struct epx_python_block *behind = block->after;

    block->bytes += behind->bytes;
    block->after = behind->after;
    if (block->after)
        block->after->before = block;
    free(behind);
}

static void give(struct epx_python_block *block)
{
    struct epx_python_arena *arena = block->arena;

    block->is_used = 0;
    arena->num_used--;
    arena->used_bytes -= (int64_t)block->bytes;
    if (block->after && !block->after->is_used)
        join(block);
    if (block->before && !block->before->is_used)
        join(block->before);
}

/* Gives back what epx_python_take gave. Local; any thread. In a process that was forked off nothing
 * is, as the mutex may be that of a thread of the parent. */
void epx_python_give(struct epx_python_block *block)
{
    if (epx_python_is_child())
        return;
    pthread_mutex_lock(&mutex);
    give(block);
    pthread_mutex_unlock(&mutex);
}

static struct epx_python_block *used_block_at(const void *data)
{
    for (struct epx_python_arena *arena = arenas; arena; arena = arena->next) {
        if ((uintptr_t)data - (uintptr_t)arena->window >= arena->bytes)
            continue;
        for (struct epx_python_block *block = arena->first; block; block = block->after)
            if (block->data == data && block->is_used)
                return block;
    }
    return NULL;
}

/* Gives back the part that starts there; 0 if no part does. */
int epx_python_give_at(const void *data)
{
    struct epx_python_block *block;

    pthread_mutex_lock(&mutex);
    block = used_block_at(data);
    if (block)
        give(block);
    pthread_mutex_unlock(&mutex);
    return block != NULL;
}

/* Whether all those bytes lie in an arena of the communicator. */
int epx_python_is_reserved(int number, const void *data, int64_t bytes)
{
    int found = 0;

    pthread_mutex_lock(&mutex);
    for (struct epx_python_arena *arena = first_of(number, arenas); arena && !found;
         arena = first_of(number, arena->next)) {
        uintptr_t start = (uintptr_t)data - (uintptr_t)arena->window;

        found = bytes >= 0 && start < arena->bytes && (uint64_t)bytes <= arena->bytes - start;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

/* Sums up the arenas of the communicator: bytes, bytes of parts, parts, parts that did not fit; and
 * the device. */
int epx_python_reserved(int number, int64_t counts[5])
{
    struct epx_python_comm *comm;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    for (int i = 0; i < 4; i++)
        counts[i] = 0;
    counts[4] = -1;
    pthread_mutex_lock(&mutex);
    for (struct epx_python_arena *arena = first_of(number, arenas); arena;
         arena = first_of(number, arena->next)) {
        counts[0] += (int64_t)arena->bytes;
        counts[1] += arena->used_bytes;
        counts[2] += arena->num_used;
        counts[3] += arena->num_refused;
        counts[4] = arena->device;
    }
    pthread_mutex_unlock(&mutex);
    return EPX_SUCCESS;
}

/* Seals the communicator's arenas, from which nothing is taken then, or opens them again; returns
 * the parts that are in use, or -1 if there is no arena. */
int64_t epx_python_seal(int number, int sealed)
{
    int64_t num_used = -1;

    pthread_mutex_lock(&mutex);
    for (struct epx_python_arena *arena = first_of(number, arenas); arena;
         arena = first_of(number, arena->next)) {
        arena->is_sealed = sealed;
        num_used = (num_used < 0 ? 0 : num_used) + arena->num_used;
    }
    pthread_mutex_unlock(&mutex);
    return num_used;
}
