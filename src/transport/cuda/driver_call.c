/* SPDX-License-Identifier: BSD-3-Clause */
/* driver_call.c - calls of the CUDA driver, which the module is not linked with. */
#include "transport/cuda/driver_call.h"

cudaError_t epx_find_driver_call(const char *name, unsigned version, void **call)
{
    enum cudaDriverEntryPointQueryResult result;
    cudaError_t error;

#if CUDART_VERSION >= 12050
    error = cudaGetDriverEntryPointByVersion(name, call, version, cudaEnableDefault, &result);
#else
    (void)version;
    error = cudaGetDriverEntryPoint(name, call, cudaEnableDefault, &result);
#endif
    if (error == cudaSuccess && result != cudaDriverEntryPointSuccess)
        error = cudaErrorSymbolNotFound;
    return error;
}
