/* SPDX-License-Identifier: BSD-3-Clause */
/* known_memory.h - memory that the emulation knows: of devices, and of the host as devices see
 * it. */
#ifndef KNOWN_MEMORY_H
#define KNOWN_MEMORY_H

#include <cuda_runtime_api.h>

enum memory_kind {
    MEMORY_ALONE,     /* cudaMalloc */
    MEMORY_OF_POOL,   /* cudaMallocAsync */
    MEMORY_OPENED,    /* of another process */
    MEMORY_OF_HOST,   /* cudaHostAlloc */
    MEMORY_REGISTERED /* cudaHostRegister */
};

struct range {
    char *start;
    size_t bytes;
    enum memory_kind kind;
    int device;
};

/* New memory of a device, or of the host; NULL if there is none. */
void *memory_make(enum memory_kind kind, size_t bytes, int device);
/* Gives back memory of one of the kinds from first to last. */
cudaError_t memory_free(void *memory, enum memory_kind first, enum memory_kind last);
/* Notes what the caller has made, and forgets it. */
void memory_note(struct range range);
cudaError_t memory_forget(const void *start, enum memory_kind kind);
/* Bytes of a device that this process has. */
size_t memory_bytes(int device);
/* Whether the emulation knows the memory; if so tells what it is. */
int memory_find(const void *address, struct range *range);

#endif
