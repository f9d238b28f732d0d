/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_cuda.h - the functions of CUDA's driver that the glue calls. The driver is opened when it is
 * first wanted, so that the same file works where there is none.
 */
#ifndef EPX_PYTHON_GLUE_CUDA_H
#define EPX_PYTHON_GLUE_CUDA_H

#include "glue.h"

/* In the driver's own types: CUdeviceptr is a 64-bit number, CUdevice, CUresult and other names of
 * values are ints, handles are pointers. */
struct epx_python_cuda {
    int (*init)(unsigned flags);
    int (*get_device)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*get_context)(void **context);
    int (*set_context)(void *context);
    int (*exchange_mode)(int *mode);
    int (*allocate)(uint64_t *memory, size_t bytes);
    int (*free)(uint64_t memory);
    int (*synchronize)(void);
    int (*get_attribute)(void *value, int attribute, uint64_t memory);
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, EPX_Stream stream);
    int (*copy_now)(uint64_t to, uint64_t from, size_t bytes);
    int (*fill)(uint64_t to, unsigned value, size_t count, EPX_Stream stream);
    int (*create_event)(void **event, unsigned flags);
    int (*destroy_event)(void *event);
    int (*record_event)(void *event, EPX_Stream stream);
    int (*await_event)(EPX_Stream stream, void *event, unsigned flags);
    int (*find_capture)(EPX_Stream stream, int *status, uint64_t *id, void *graph,
                        void *dependencies, size_t *num_dependencies);
};

/* NULL if there is no driver, or one that lacks any of these. */
const struct epx_python_cuda *epx_python_cuda(void);

#endif
