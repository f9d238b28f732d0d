/* SPDX-License-Identifier: BSD-3-Clause */
/* pretend_ipc.c - memory that processes share, as CUDA does it, without a GPU. */
#include "pretend/pretend_ipc.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pretend/pretend_blocks.h"

enum { BLOCK_BYTES = 2 << 20, MOST_DELAY_US = 3000 };

static int failures[PRETEND_CALLS]; /* 0 = none, n = the n-th call from now on */
static int num_misused, reachable = 1, atomics = 1;

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

int pretend_num_allocated(void)
{
    return pretend_block_count(1);
}

int pretend_num_opened(void)
{
    return pretend_block_count(0);
}

int pretend_num_misused(void)
{
    return num_misused;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    if (fails(PRETEND_MALLOC))
        return cudaErrorMemoryAllocation;
    *memory = pretend_block_make(bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
    int opened = memory ? pretend_block_free(memory) : 0;

    num_misused += opened != 0;
    return opened < 0 ? cudaErrorInvalidValue : cudaSuccess;
}

/* Counts a misuse where memory is not made of whole blocks: smaller allocations may share a
 * block. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
    char name[PRETEND_NAME_BYTES];
    size_t bytes;
    int found = pretend_block_look(memory, &bytes, name);

    num_misused += !found;
    if (!found || fails(PRETEND_EXPORT))
        return cudaErrorNotSupported;
    num_misused += bytes % BLOCK_BYTES != 0;
    memcpy(handle->reserved, name, sizeof(name));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags)
{
    num_misused += flags != cudaIpcMemLazyEnablePeerAccess;
    if (fails(PRETEND_OPEN))
        return cudaErrorMapBufferObjectFailed;
    *memory = pretend_block_open(handle.reserved);
    return *memory ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

/* Waits a while, so that an owner that frees too early is caught. */
cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    int opened;

    usleep((useconds_t)(rand() % MOST_DELAY_US));
    opened = pretend_block_close(memory);
    num_misused += opened < 0;
    return opened < 0 ? cudaErrorInvalidValue : cudaSuccess;
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
