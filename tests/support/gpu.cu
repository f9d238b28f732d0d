/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.cu - kernels of the tests. */
#include "support/gpu.h"

static __global__ void hold(const volatile int *flag)
{
    while (*flag)
        __nanosleep(1000);
}

static __global__ void copy(char *to, const char *from, size_t bytes)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < bytes;
         i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}

void gpu_hold(const volatile int *flag, EPX_Stream stream)
{
    hold<<<1, 1, 0, stream>>>(flag);
}

void gpu_copy(void *to, const void *from, size_t bytes, EPX_Stream stream)
{
    copy<<<64, 256, 0, stream>>>((char *)to, (const char *)from, bytes);
}
