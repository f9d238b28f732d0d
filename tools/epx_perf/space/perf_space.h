/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_space.h - the memory space of a run, host memory or that of the GPUs: one table of
 * operations for each, and buffers that lie in it. What a table leaves out is NULL.
 */
#ifndef EPX_PERF_SPACE_H
#define EPX_PERF_SPACE_H

#include <epx.h>

/* Of the bytes at home and the rows that are made of them, or the other way round. */
struct perf_copy {
    void *home, *rows;
    int64_t home_bytes, rows_bytes;
    int gathers; /* from rows to home */
};

struct perf_space {
    const char *name;                    /* as --memory says it */
    const char *hint;                    /* epx_memory */
    const char *heap;                    /* what allocates there */
    int (*open)(MPI_Comm comm);          /* 0, or -1 on all ranks, one of them having said why */
    void (*close)(void);
    void *(*alloc)(int64_t bytes);
    void (*free)(void *memory);
    void (*fill)(void *memory, int byte, int64_t bytes);
    void (*start_clock)(void);
    double (*stop_clock)(void);          /* seconds, for all that was called or queued since */
    void (*copy)(const struct perf_copy *copy);
    void (*compute)(int64_t units, int spare_sms); /* beside what is queued since start_clock */

    /* Where operations are queued and the host does not see the memory. */
    EPX_Stream (*stream)(void);
    void *(*alloc_image)(int64_t bytes);
    void (*free_image)(void *image);
    void (*put)(void *memory, const void *image, int64_t bytes); /* done when they return */
    void (*get)(void *image, const void *memory, int64_t bytes);
    void (*start_capture)(void);
    void *(*end_capture)(void); /* a graph of what was queued since */
    void (*replay)(void *graph);
    void (*free_graph)(void *graph);
    double (*ceiling)(MPI_Comm comm); /* bytes a second that every rank stores into the others */
};

extern const struct perf_space perf_space_host;
extern const struct perf_space perf_space_cuda;

/* By the name for --memory; NULL if this build has none of it. */
const struct perf_space *perf_space_find(const char *name);

/* Memory of a space, and what the host sees of it: the same thing where it can. */
struct perf_buffer {
    const struct perf_space *space; /* NULL: no memory */
    EPX_Comm window;                /* of EPX_Alloc_mem; EPX_COMM_NULL otherwise */
    int borrowed;
    void *address, *image;
    int64_t bytes;
};

/* Zeroed. Collective if comm is not EPX_COMM_NULL: memory of EPX_Alloc_mem, as is free then. */
void perf_buffer_create(struct perf_buffer *buffer, const struct perf_space *space, int64_t bytes,
                        EPX_Comm comm);
/* Of somebody else's memory. */
void perf_buffer_borrow(struct perf_buffer *buffer, const struct perf_space *space, void *memory,
                        int64_t bytes);
void perf_buffer_free(struct perf_buffer *buffer);
/* The image, whatever it holds. */
void *perf_buffer_image(struct perf_buffer *buffer);
/* From the image to the memory, and the other way round. */
void perf_buffer_send(struct perf_buffer *buffer);
void *perf_buffer_fetch(struct perf_buffer *buffer);
void perf_buffer_poison(struct perf_buffer *buffer);

#endif
