/* SPDX-License-Identifier: BSD-3-Clause */
/* load_kernels.cu - the list of all kernels; their files add to it when the module is opened. */
#include "kernels/protocol/load_kernels.cuh"

static const struct epx_loaded *first;

epx_loaded::epx_loaded(const void *const *given, int num, int shared)
    : kernels{}, shared_bytes(shared), next(first)
{
    for (int i = 0; i < num; i++)
        kernels[i] = given[i];
    first = this;
}

static cudaError_t load(const void *kernel, int shared_bytes)
{
    cudaFuncAttributes attributes;

    if (shared_bytes)
        return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    shared_bytes);
    return cudaFuncGetAttributes(&attributes, kernel);
}

int epx_load_kernels(void)
{
    for (const struct epx_loaded *loaded = first; loaded; loaded = loaded->next)
        for (const void *kernel : loaded->kernels)
            if (kernel && load(kernel, loaded->shared_bytes) != cudaSuccess)
                return EPX_ERR_CUDA;
    return EPX_SUCCESS;
}
