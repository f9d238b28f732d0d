/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_kernels.h - launchers of the benchmark's own kernels, which return at once. */
#ifndef EPX_PERF_KERNELS_H
#define EPX_PERF_KERNELS_H

#include <cuda_runtime_api.h>

#include "epx_perf/space/perf_space.h"

enum { PERF_STORE_ROW_BYTES = 14336, PERF_MOST_GPUS = 64 };

/* Every rank stores rows into all others: to[r] is where this rank's rows lie on rank r. */
struct perf_stores {
    char *to[PERF_MOST_GPUS];
    int rank, size;
    int64_t rows; /* for each of the others */
};

#ifdef __cplusplus
extern "C" {
#endif
void perf_launch_copy(const struct perf_copy *copy, cudaStream_t stream);
void perf_launch_compute(int64_t units, int blocks, cudaStream_t stream);
void perf_launch_stores(const struct perf_stores *stores, int blocks, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
