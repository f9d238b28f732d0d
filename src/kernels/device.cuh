/* SPDX-License-Identifier: BSD-3-Clause */
/* device.cuh - what kernels share that only nvcc understands. */
#ifndef EPX_KERNELS_DEVICE_CUH
#define EPX_KERNELS_DEVICE_CUH

#include <cuda_runtime.h>

enum : int64_t { EPX_BLOCK_THREADS = 256, EPX_MOST_BLOCKS = 1024 };

/* Blocks for n independent items, one thread each, that stride over what is left. */
static inline unsigned epx_blocks_for(int64_t n)
{
    int64_t blocks = (n + EPX_BLOCK_THREADS - 1) / EPX_BLOCK_THREADS;

    if (blocks > EPX_MOST_BLOCKS)
        blocks = EPX_MOST_BLOCKS;
    return (unsigned)(blocks < 1 ? 1 : blocks);
}

static inline int epx_cuda_status(cudaError_t error)
{
    return error == cudaSuccess ? EPX_SUCCESS : EPX_ERR_CUDA;
}

#endif
