/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_space.h - the memory space of a run, host memory or that of the GPUs: one table of
 * operations for each. An operation that a space does not need is NULL in its table.
 */
#ifndef EPX_PERF_SPACE_H
#define EPX_PERF_SPACE_H

#include <epx.h>

/* A copy of the bytes at home into the rows that are made of them, or the other way round. */
struct perf_copy {
    void *home, *rows;
    int64_t home_bytes, rows_bytes;
    int gathers; /* from rows to home */
};

struct perf_space {
    const char *name;  /* as --memory says it */
    const char *hint;  /* epx_memory */
    const char *heap;  /* the function that allocates there */
    int (*open)(void); /* 0, or -1 on all ranks, one of them having said why */
    void (*close)(void);
    void *(*alloc)(int64_t bytes);
    void (*free)(void *memory);
    void (*fill)(void *memory, int byte, int64_t bytes);
    void (*start_clock)(void);
    double (*stop_clock)(void); /* seconds since start_clock, queued work included */
    void (*copy)(const struct perf_copy *copy);
    void (*compute)(int64_t units, int spare_sms); /* beside what is queued since start_clock */

    /* Products of matrices by a library, beside what is queued since start_clock: NULL, or why
     * there are none; queue some, made to leave so many multiprocessors alone, which what is queued
     * later comes behind; seconds of those since start_clock, once the clock was stopped. */
    const char *(*open_gemm)(void);
    void (*gemm)(int64_t num, int spare_sms);
    double (*gemm_time)(void);

    /* The rest is for a space that queues operations and whose memory the host cannot reach. */
    EPX_Stream (*stream)(void);
    void *(*alloc_image)(int64_t bytes);
    void (*free_image)(void *image);
    void (*put)(void *memory, const void *image, int64_t bytes); /* done on return */
    void (*get)(void *image, const void *memory, int64_t bytes); /* done on return */
    void (*start_capture)(void);
    /* A graph of what was queued since start_capture, and how many kernels it has. */
    void *(*end_capture)(int *kernels);
    void (*replay)(void *graph);
    void (*free_graph)(void *graph);
    /* Bytes a second that every rank stores into the others; collective. */
    double (*ceiling)(const struct perf_space *space);
    /* What the memory belongs to, by its maker's name. */
    void (*read_device)(char *name, int length);
};

extern const struct perf_space perf_space_host;
extern const struct perf_space perf_space_cuda;

#endif
