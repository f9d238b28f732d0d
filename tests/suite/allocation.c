/* SPDX-License-Identifier: BSD-3-Clause */
/* allocation.c - stands between the program and the functions that allocate. */
#include "suite/allocation.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The blocks that live: a table with linear probing, never more than half full. */
enum { TABLE_SIZE = 1 << 18 };
/* Guards stand behind blocks of posix_memalign, from which the library's arrays and stages come. */
enum { GUARD_BYTES = 256, GUARD = 0xa5 };

struct block {
    const void *address; /* NULL = free place */
    int64_t bytes;
    int guarded;
};

static struct block table[TABLE_SIZE];
static struct allocation now;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
int __real_posix_memalign(void **block, size_t alignment, size_t bytes);
void __real_free(void *block);
void *__real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t bytes);
int __real_posix_fallocate(int fd, off_t offset, off_t bytes);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
int __wrap_posix_memalign(void **block, size_t alignment, size_t bytes);
void __wrap_free(void *block);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t bytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes);

static size_t home_of(const void *block)
{
    return (size_t)(((uintptr_t)block >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40) % TABLE_SIZE;
}

/* The place of a block in the table, or that of the hole where it would go. */
static size_t place_of(const void *block)
{
    size_t i = home_of(block);

    while (table[i].address && table[i].address != block)
        i = (i + 1) % TABLE_SIZE;
    return i;
}

static void note(const void *block, size_t bytes, int guarded)
{
    if (!block)
        return;
    pthread_mutex_lock(&mutex);
    if (now.live_blocks >= TABLE_SIZE / 2) {
        fputs("allocation.c: too many blocks\n", stderr);
        abort();
    }
    table[place_of(block)] = (struct block){block, (int64_t)bytes, guarded};
    now.calls++;
    now.live_blocks++;
    now.live_bytes += (int64_t)bytes;
    pthread_mutex_unlock(&mutex);
}

static int is_intact(const struct block *block)
{
    const unsigned char *guard = (const unsigned char *)block->address + block->bytes;

    for (int i = 0; block->guarded && i < GUARD_BYTES; i++)
        if (guard[i] != GUARD)
            return 0;
    return 1;
}

int allocation_is_intact(void)
{
    int intact = 1;

    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < TABLE_SIZE; i++)
        intact &= !table[i].address || is_intact(&table[i]);
    pthread_mutex_unlock(&mutex);
    return intact;
}

/* Closes a hole: blocks behind it may stand where they do because its place was taken. */
static void take_out(size_t hole)
{
    table[hole].address = NULL;
    for (size_t i = (hole + 1) % TABLE_SIZE; table[i].address; i = (i + 1) % TABLE_SIZE) {
        struct block moved = table[i];

        table[i].address = NULL;
        table[place_of(moved.address)] = moved;
    }
}

/* Takes a block out of the table, if it is known: the C library's own are not. */
static void forget(const void *block)
{
    size_t place;

    pthread_mutex_lock(&mutex);
    place = place_of(block);
    if (block && table[place].address) {
        now.live_blocks--;
        now.live_bytes -= table[place].bytes;
        if (!is_intact(&table[place])) {
            fprintf(stderr, "allocation.c: %lld bytes are written past their end\n",
                    (long long)table[place].bytes);
            abort();
        }
        take_out(place);
    }
    pthread_mutex_unlock(&mutex);
}

void *__wrap_malloc(size_t bytes)
{
    void *block = __real_malloc(bytes);

    note(block, bytes, 0);
    return block;
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    void *block = __real_calloc(n, bytes);

    note(block, n * bytes, 0);
    return block;
}

void *__wrap_realloc(void *block, size_t bytes)
{
    void *moved;

    forget(block);
    moved = __real_realloc(block, bytes);
    note(moved, bytes, 0);
    return moved;
}

int __wrap_posix_memalign(void **block, size_t alignment, size_t bytes)
{
    int error = __real_posix_memalign(block, alignment, bytes + GUARD_BYTES);

    if (!error) {
        memset((char *)*block + bytes, GUARD, GUARD_BYTES);
        note(*block, bytes, 1);
    }
    return error;
}

void __wrap_free(void *block)
{
    forget(block);
    __real_free(block);
}

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    void *mapping = __real_mmap(address, bytes, protection, flags, fd, offset);

    if (mapping != MAP_FAILED)
        __atomic_add_fetch(&now.mapped_bytes, (int64_t)bytes, __ATOMIC_RELAXED);
    return mapping;
}

int __wrap_munmap(void *address, size_t bytes)
{
    __atomic_sub_fetch(&now.mapped_bytes, (int64_t)bytes, __ATOMIC_RELAXED);
    return __real_munmap(address, bytes);
}

int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes)
{
    __atomic_add_fetch(&now.shared_bytes, (int64_t)bytes, __ATOMIC_RELAXED);
    return __real_posix_fallocate(fd, offset, bytes);
}

struct allocation allocation_now(void)
{
    struct allocation copy;

    pthread_mutex_lock(&mutex);
    copy = now;
    pthread_mutex_unlock(&mutex);
    return copy;
}

struct allocation allocation_since(const struct allocation *before)
{
    struct allocation since = allocation_now();

    since.calls -= before->calls;
    since.live_blocks -= before->live_blocks;
    since.live_bytes -= before->live_bytes;
    since.mapped_bytes -= before->mapped_bytes;
    since.shared_bytes -= before->shared_bytes;
    return since;
}
