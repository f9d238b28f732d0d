/* SPDX-License-Identifier: BSD-3-Clause */
/* pretend_ipc.c - memory that processes share, as CUDA does it, without a GPU. */
#include "pretend/pretend_ipc.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_BLOCKS = 256, HEADER_BYTES = 4096, BLOCK_BYTES = 2 << 20, MOST_DELAY_US = 3000 };

/* Stands in front of the memory of each allocation. */
struct header {
    atomic_int opened; /* how many other processes have it mapped */
};

struct block {
    struct header *header; /* NULL = free entry */
    size_t bytes;
    int is_own;
    char name[CUDA_IPC_HANDLE_SIZE];
};

static struct block blocks[MOST_BLOCKS];
static int failures[PRETEND_CALLS]; /* 0 = none, n = the n-th call from now on */
static int num_made, num_misused, reachable = 1, atomics = 1;

void pretend_failure(enum pretend_call call, int after)
{
    failures[call] = after + 1;
}

void pretend_peers(int are_reachable, int have_atomics)
{
    reachable = are_reachable;
    atomics = have_atomics;
}

static int fails(enum pretend_call call)
{
    return failures[call] && --failures[call] == 0;
}

static int count(int is_own)
{
    int num = 0;

    for (int i = 0; i < MOST_BLOCKS; i++)
        num += blocks[i].header && blocks[i].is_own == is_own;
    return num;
}

int pretend_num_allocated(void)
{
    return count(1);
}

int pretend_num_opened(void)
{
    return count(0);
}

int pretend_num_misused(void)
{
    return num_misused;
}

static struct block *block_at(const void *memory, int is_own)
{
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (blocks[i].header && (char *)blocks[i].header + HEADER_BYTES == (const char *)memory &&
            blocks[i].is_own == is_own)
            return &blocks[i];
    num_misused++;
    return NULL;
}

static struct block *unused_block(void)
{
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (!blocks[i].header)
            return &blocks[i];
    abort();
}

static void *map_block(struct block *block, int fd)
{
    void *mapping = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    close(fd);
    block->header = mapping == MAP_FAILED ? NULL : mapping;
    return block->header ? (char *)mapping + HEADER_BYTES : NULL;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    struct block *block = unused_block();
    int fd;

    if (fails(PRETEND_MALLOC))
        return cudaErrorMemoryAllocation;
    block->bytes = HEADER_BYTES + bytes;
    block->is_own = 1;
    snprintf(block->name, sizeof(block->name), "/epx-pretend-%d-%d", (int)getpid(), num_made++);
    fd = shm_open(block->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)block->bytes) != 0)
        abort();
    *memory = map_block(block, fd);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
    struct block *block = memory ? block_at(memory, 1) : NULL;

    if (!block)
        return memory ? cudaErrorInvalidValue : cudaSuccess;
    num_misused += atomic_load(&block->header->opened) != 0;
    munmap(block->header, block->bytes);
    shm_unlink(block->name);
    block->header = NULL;
    return cudaSuccess;
}

/* Counts a misuse where memory is not made of whole blocks: smaller allocations may share a
 * block. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
    const struct block *block = block_at(memory, 1);

    if (!block || fails(PRETEND_EXPORT))
        return cudaErrorNotSupported;
    num_misused += (block->bytes - HEADER_BYTES) % BLOCK_BYTES != 0;
    memcpy(handle->reserved, block->name, sizeof(block->name));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags)
{
    struct block *block = unused_block();
    int fd;

    num_misused += flags != cudaIpcMemLazyEnablePeerAccess;
    if (fails(PRETEND_OPEN))
        return cudaErrorMapBufferObjectFailed;
    memcpy(block->name, handle.reserved, sizeof(block->name));
    fd = shm_open(block->name, O_RDWR, 0);
    if (fd < 0)
        return cudaErrorInvalidResourceHandle;
    block->bytes = (size_t)lseek(fd, 0, SEEK_END);
    block->is_own = 0;
    *memory = map_block(block, fd);
    if (!*memory)
        return cudaErrorMapBufferObjectFailed;
    atomic_fetch_add(&block->header->opened, 1);
    return cudaSuccess;
}

/* Waits a while, so that an owner that frees too early is caught. */
cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    struct block *block = block_at(memory, 0);

    if (!block)
        return cudaErrorInvalidValue;
    usleep((useconds_t)(rand() % MOST_DELAY_US));
    atomic_fetch_sub(&block->header->opened, 1);
    munmap(block->header, block->bytes);
    block->header = NULL;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    (void)device;
    (void)peer;
    *can = reachable;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int device,
                                      int peer)
{
    (void)device;
    (void)peer;
    *value = attribute == cudaDevP2PAttrNativeAtomicSupported ? atomics : 0;
    return cudaSuccess;
}
