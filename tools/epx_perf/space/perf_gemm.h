/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_gemm.h - products of matrices by cuBLAS, which is opened when they are wanted, so that
 * epx_perf itself does not need it.
 */
#ifndef EPX_PERF_GEMM_H
#define EPX_PERF_GEMM_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* NULL, or why there are no products. */
const char *perf_gemm_open(void);
void perf_gemm_close(void);
/* Queues `num` products made for so many multiprocessors. */
void perf_gemm_queue(int64_t num, int sms, cudaStream_t stream);

#endif
