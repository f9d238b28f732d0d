/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_must.h - how an error of CUDA ends the job. */
#ifndef EPX_PERF_MUST_H
#define EPX_PERF_MUST_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Ends the job if there was an error; `what` names the call that failed. */
void perf_must(cudaError_t error, const char *what);
#ifdef __cplusplus
}
#endif

#endif
