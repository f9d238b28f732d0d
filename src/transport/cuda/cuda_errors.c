/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_errors.c - errors of CUDA calls on their way up. */
#include "transport/cuda/cuda_errors.h"

#include "base/log.h"

int epx_fail_cuda(cudaError_t error, const char *call)
{
    int code = error == cudaErrorMemoryAllocation ? EPX_ERR_NO_MEM : EPX_ERR_CUDA;

    return epx_fail(code, "%s: %s", call, cudaGetErrorString(error));
}

void epx_cuda_forget_error(void)
{
    cudaError_t error = cudaGetLastError();

    if (error != cudaSuccess && error != cudaErrorNotReady)
        EPX_LOG_WARN("an earlier CUDA call of this thread failed: %s", cudaGetErrorString(error));
}
