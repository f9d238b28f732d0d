/* SPDX-License-Identifier: BSD-3-Clause */
/* load_kernels.cu - the list of all kernels; their files add to it when the module is opened. */
#include "kernels/args/load.h"
#include "kernels/protocol/load_kernels.cuh"

#include <epx.h>
#include <limits.h>

static const struct epx_loaded *first;

epx_loaded::epx_loaded(const void *const *given, int num, int shared)
    : kernels{}, shared_bytes(shared), next(first)
{
    for (int i = 0; i < num; i++)
        kernels[i] = given[i];
    first = this;
}

/* The least virtual architecture that a kernel which was loaded was compiled for. */
static int least_version = INT_MAX;

static cudaError_t load(const void *kernel, const struct epx_loaded &loaded)
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);

    if (error == cudaSuccess && attributes.ptxVersion < least_version)
        least_version = attributes.ptxVersion;
    if (error == cudaSuccess && loaded.shared_bytes)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     loaded.shared_bytes);
    if (error == cudaSuccess && loaded.shares)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    return error;
}

int epx_load_kernels(void)
{
    for (const struct epx_loaded *loaded = first; loaded; loaded = loaded->next)
        for (const void *kernel : loaded->kernels)
            if (kernel && load(kernel, *loaded) != cudaSuccess)
                return EPX_ERR_CUDA;
    return EPX_SUCCESS;
}

/* In a graph, CUDA keeps that a kernel may begin early since 12.3. */
int epx_kernels_begin_early(void)
{
    enum { SINCE_VERSION = 90, SINCE_CUDA = 12030 };

    return least_version >= SINCE_VERSION && CUDART_VERSION >= SINCE_CUDA;
}
