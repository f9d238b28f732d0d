/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_errors.h - errors of CUDA calls on their way up; for the files of the CUDA module. */
#ifndef EPX_TRANSPORT_CUDA_CUDA_ERRORS_H
#define EPX_TRANSPORT_CUDA_CUDA_ERRORS_H

#include <cuda_runtime_api.h>

#include "base/status.h"

int epx_fail_cuda(cudaError_t error, const char *call);
/* Clears an error of an earlier call of this thread: launchers would take it as their own. */
void epx_cuda_forget_error(void);

/* Returns EPX_ERR_CUDA, or EPX_ERR_NO_MEM, logged, if a CUDA call fails. */
#define EPX_TRY_CUDA(call)                                                                         \
    do {                                                                                           \
        cudaError_t epx_rc_ = (call);                                                              \
        if (epx_rc_ != cudaSuccess)                                                                \
            return epx_fail_cuda(epx_rc_, #call);                                                  \
    } while (0)

/* EPX_TRY_CUDA for a launcher of kernels, which leaves the error to cudaGetLastError. */
#define EPX_TRY_LAUNCH(call)                                                                       \
    do {                                                                                           \
        if ((call) != EPX_SUCCESS)                                                                 \
            return epx_fail_cuda(cudaGetLastError(), #call);                                       \
    } while (0)

#endif
