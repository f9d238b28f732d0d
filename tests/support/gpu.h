/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h - kernels of the tests: one that holds a stream back, one that stands for a user's work.
 * And what the driver alone makes or tells: memory in pieces, streams that have a part of the GPU,
 * kernels of a graph.
 */
#ifndef GPU_H
#define GPU_H

#include <cuda_runtime_api.h>

#include "epx.h"

#ifndef __cplusplus
#include "support/suite.h"

/* A call of CUDA that a test makes itself. */
static inline void must(cudaError_t error)
{
    EXPECT(error == cudaSuccess, "%s", cudaGetErrorString(error));
}
#endif

#ifdef __cplusplus
extern "C" {
#endif
/* Queues a kernel that ends when *flag, pinned host memory, is 0. */
void gpu_hold(const volatile int *flag, EPX_Stream stream);
/* Queues a kernel that copies bytes between two buffers in device memory. */
void gpu_copy(void *to, const void *from, size_t bytes, EPX_Stream stream);

/* The kernels of a graph, and the most blocks that one has. num is -1 if CUDA cannot tell. */
struct gpu_kernels {
    int num;
    unsigned most_blocks;
};
struct gpu_kernels gpu_kernels_of(cudaGraph_t graph);

/* Addresses in a row, of which each piece is memory that the device may use, memory that it may not
 * use, or only reserved. */
enum gpu_piece { GPU_RESERVED, GPU_CLOSED, GPU_OPEN };
enum { GPU_MOST_PIECES = 8 };
struct gpu_mapping {
    char *base;
    size_t piece_bytes;
    int num;
    enum gpu_piece pieces[GPU_MOST_PIECES];
    unsigned long long handles[GPU_MOST_PIECES];
};
/* With num and pieces set. Returns whether the device can do it. */
int gpu_map(struct gpu_mapping *mapping, int ordinal);
void gpu_unmap(struct gpu_mapping *mapping);

/* A stream of a green context with about so many multiprocessors. Returns whether there is one. */
struct gpu_part {
    EPX_Stream stream;
    void *context;
    int sms;
};
int gpu_take_part(struct gpu_part *part, int ordinal, int sms);
void gpu_give_part(struct gpu_part *part);
#ifdef __cplusplus
}
#endif

#endif
