/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_gemm.c - products of matrices by cuBLAS. */
#include "epx_perf/space/perf_gemm.h"

#if __has_include(<cublas_v2.h>)

#include <cublas_v2.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "epx_perf/space/perf_alloc.h"
#include "epx_perf/space/perf_must.h"
#include "epx_perf/space/perf_symbols.h"
#include "ranks/ranks.h"

/* A product of bfloat16 matrices takes some hundred microseconds of an H200, in as many waves of
 * tiles that the last one, which does not fill the GPU, counts little. */
enum { ROWS = 8192, COLUMNS = 8192, DEPTH = 2048, BYTES = 2 };

static struct {
    __typeof__(&cublasCreate) create;
    __typeof__(&cublasDestroy) destroy;
    __typeof__(&cublasSetStream) set_stream;
    __typeof__(&cublasSetSmCountTarget) set_sms;
    __typeof__(&cublasGemmEx) gemm;
} cublas;

static const struct perf_symbol entries[] = {
    {"cublasCreate_v2", &cublas.create},
    {"cublasDestroy_v2", &cublas.destroy},
    {"cublasSetStream_v2", &cublas.set_stream},
    {"cublasSetSmCountTarget", &cublas.set_sms},
    {"cublasGemmEx", &cublas.gemm},
    {NULL, NULL},
};

static cublasHandle_t handle;
static char *matrices;

static void must(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "epx_perf: %s: status %d\n", what, (int)status);
    ranks_failed();
}

static void *open_library(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
                                        NULL};
    void *library = NULL;

    for (int i = 0; names[i] && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static const char *load(void)
{
    void *library = open_library();

    if (!library)
        return "no libcublas.so was found";
    return perf_symbols_find(library, entries);
}

/* Numbers of either sign, from 1 to 2: zeros would take less power than a model's matrices. */
static void fill(size_t bytes)
{
    enum { VALUES = 1 << 20, SIGN = 0x8000, ONE = 0x3f80, FRACTION = 0x7f };
    uint16_t *values = perf_alloc(VALUES, sizeof(*values));
    uint32_t state = 1;

    for (int i = 0; i < VALUES; i++) {
        state = state * 1664525 + 1013904223; /* Numerical Recipes' generator */
        values[i] = (uint16_t)((state >> 16 & (SIGN | FRACTION)) | ONE);
    }
    for (size_t at = 0; at < bytes; at += VALUES * sizeof(*values))
        perf_must(
            cudaMemcpy(matrices + at, values, VALUES * sizeof(*values), cudaMemcpyHostToDevice),
            "cudaMemcpy");
    free(values);
}

const char *perf_gemm_open(void)
{
    const size_t bytes =
        ((size_t)ROWS * DEPTH + (size_t)DEPTH * COLUMNS + (size_t)ROWS * COLUMNS) * BYTES;
    const char *why = load();

    if (why)
        return why;
    if (cublas.create(&handle) != CUBLAS_STATUS_SUCCESS)
        return "cublasCreate failed";
    perf_must(cudaMalloc((void **)&matrices, bytes), "cudaMalloc");
    fill(bytes);
    return NULL;
}

void perf_gemm_close(void)
{
    if (!handle)
        return;
    must(cublas.destroy(handle), "cublasDestroy");
    handle = NULL;
    perf_must(cudaFree(matrices), "cudaFree");
}

void perf_gemm_queue(int64_t num, int sms, cudaStream_t stream)
{
    static const float one = 1, zero = 0;
    char *a = matrices, *b = a + (size_t)ROWS * DEPTH * BYTES;
    char *c = b + (size_t)DEPTH * COLUMNS * BYTES;

    must(cublas.set_stream(handle, stream), "cublasSetStream");
    must(cublas.set_sms(handle, sms), "cublasSetSmCountTarget");
    for (int64_t i = 0; i < num; i++)
        must(cublas.gemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, ROWS, COLUMNS, DEPTH, &one, a,
                         CUDA_R_16BF, ROWS, b, CUDA_R_16BF, DEPTH, &zero, c, CUDA_R_16BF, ROWS,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
             "cublasGemmEx");
}

#else

const char *perf_gemm_open(void)
{
    return "epx_perf was built without cublas_v2.h";
}

void perf_gemm_close(void)
{
}

void perf_gemm_queue(int64_t num, int sms, cudaStream_t stream)
{
    (void)num;
    (void)sms;
    (void)stream;
}

#endif
