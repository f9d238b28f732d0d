/* SPDX-License-Identifier: BSD-3-Clause */
/* pretend_blocks.c - memory that other processes can map: files without a name, so that nothing is
 * left of a process that was killed. Others find them where the kernel shows files of a process. */
#define _GNU_SOURCE
#include "pretend/pretend_blocks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEADER_BYTES = 4096 };

/* Stands in front of the memory of each block. */
struct header {
    atomic_int opened; /* how many other processes have it mapped */
};

struct block {
    struct header *header;
    size_t bytes;
    int is_own, fd;
    struct block *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;

/* Takes the file descriptor; keeps it if the block is this process's own. */
static void *map(size_t bytes, int is_own, int fd)
{
    struct block *block = calloc(1, sizeof(*block));
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (!block || mapping == MAP_FAILED || !is_own)
        close(fd);
    if (!block || mapping == MAP_FAILED) {
        free(block);
        return NULL;
    }
    *block = (struct block){.header = mapping, .bytes = bytes, .is_own = is_own, .fd = fd};
    pthread_mutex_lock(&lock);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&lock);
    return (char *)mapping + HEADER_BYTES;
}

void *pretend_block_make(size_t bytes)
{
    int fd = memfd_create("epx-pretend", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)(HEADER_BYTES + bytes)) != 0)
        abort();
    return map(HEADER_BYTES + bytes, 1, fd);
}

void *pretend_block_open(const char *name)
{
    int fd = open(name, O_RDWR | O_CLOEXEC);
    char *memory = fd < 0 ? NULL : map((size_t)lseek(fd, 0, SEEK_END), 0, fd);

    if (memory)
        atomic_fetch_add(&((struct header *)(void *)(memory - HEADER_BYTES))->opened, 1);
    return memory;
}

/* Under the lock: where the block is linked; NULL if there is none. */
static struct block **find(const void *memory, int is_own)
{
    struct block **link = &blocks;

    while (*link && ((*link)->is_own != is_own ||
                     (char *)(*link)->header + HEADER_BYTES != (const char *)memory))
        link = &(*link)->next;
    return *link ? link : NULL;
}

int pretend_block_look(const void *memory, size_t *bytes, char name[PRETEND_NAME_BYTES])
{
    struct block **link;

    pthread_mutex_lock(&lock);
    link = find(memory, 1);
    if (link) {
        *bytes = (*link)->bytes - HEADER_BYTES;
        memset(name, 0, PRETEND_NAME_BYTES);
        snprintf(name, PRETEND_NAME_BYTES, "/proc/%d/fd/%d", (int)getpid(), (*link)->fd);
    }
    pthread_mutex_unlock(&lock);
    return link != NULL;
}

static struct block *take(const void *memory, int is_own)
{
    struct block **link, *block = NULL;

    pthread_mutex_lock(&lock);
    link = find(memory, is_own);
    if (link) {
        block = *link;
        *link = block->next;
    }
    pthread_mutex_unlock(&lock);
    return block;
}

int pretend_block_free(void *memory)
{
    struct block *block = take(memory, 1);
    int opened;

    if (!block)
        return -1;
    opened = atomic_load(&block->header->opened);
    munmap(block->header, block->bytes);
    close(block->fd);
    free(block);
    return opened;
}

int pretend_block_close(void *memory)
{
    struct block *block = take(memory, 0);
    int opened;

    if (!block)
        return -1;
    opened = atomic_fetch_sub(&block->header->opened, 1) - 1;
    munmap(block->header, block->bytes);
    free(block);
    return opened;
}

int pretend_block_count(int is_own)
{
    int num = 0;

    pthread_mutex_lock(&lock);
    for (const struct block *block = blocks; block; block = block->next)
        num += block->is_own == is_own;
    pthread_mutex_unlock(&lock);
    return num;
}
