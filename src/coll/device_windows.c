/* SPDX-License-Identifier: BSD-3-Clause */
/* device_windows.c - windows of device memory that no other rank reaches. */
#include "device_windows.h"

#include "agree.h"
#include "cuda_errors.h"
#include "device_scope.h"

int epx_device_windows_open(struct epx_device_windows *windows, struct epx_comm *comm)
{
    windows->comm = comm;
    EPX_TRY_CUDA(cudaStreamCreateWithFlags(&windows->stream, cudaStreamNonBlocking));
    return EPX_SUCCESS;
}

/* All addresses are this rank's own. */
static int init(struct epx_device_windows *windows, size_t bytes, struct epx_window *window)
{
    EPX_FAIL_IF(!window, EPX_ERR_NO_MEM, "no memory for a window");
    window->number = windows->next_number++;
    window->own_bytes = window->mapping_bytes = bytes;
    EPX_TRY_CUDA(cudaMallocAsync(&window->mapping, bytes ? bytes : 1, windows->stream));
    EPX_TRY_CUDA(cudaStreamSynchronize(windows->stream));
    window->own = window->mapping;
    for (int r = 0; r < windows->comm->size; r++)
        window->address[r] = window->own;
    return EPX_SUCCESS;
}

int epx_device_windows_create(struct epx_device_windows *windows, size_t bytes,
                              struct epx_window **result)
{
    struct epx_window *window = epx_window_empty(windows->comm->size);
    struct epx_device_scope scope;
    cudaError_t error = epx_device_enter(windows->ordinal, &scope);
    int rc;

    if (error != cudaSuccess) {
        rc = epx_fail_cuda(error, "cudaSetDevice");
    } else {
        rc = init(windows, bytes, window);
        epx_device_leave(&scope);
    }
    rc = epx_comm_agree(windows->comm, rc);
    if (rc != EPX_SUCCESS) {
        epx_device_windows_free(windows, window);
        return rc;
    }
    *result = window;
    return EPX_SUCCESS;
}

void epx_device_windows_free(struct epx_device_windows *windows, struct epx_window *window)
{
    if (!window)
        return;
    window->next = windows->laid_aside;
    windows->laid_aside = window;
}

/* Does not wait for kernels, of which none uses the window. */
static void destroy(struct epx_device_windows *windows, struct epx_window *window)
{
    struct epx_device_scope scope;

    if (window->mapping && epx_device_enter(windows->ordinal, &scope) == cudaSuccess) {
        cudaFreeAsync(window->mapping, windows->stream);
        epx_device_leave(&scope);
    }
    window->own = NULL; /* it was the mapping's */
    epx_window_free(window);
}

/* A pool of memory gives back what is free when a stream is synchronized. */
void epx_device_windows_reclaim(struct epx_device_windows *windows)
{
    while (windows->laid_aside) {
        struct epx_window *window = windows->laid_aside;

        windows->laid_aside = window->next;
        destroy(windows, window);
    }
    if (windows->stream)
        cudaStreamSynchronize(windows->stream);
}

void epx_device_windows_close(struct epx_device_windows *windows)
{
    epx_device_windows_reclaim(windows);
    if (windows->stream)
        cudaStreamDestroy(windows->stream);
    windows->stream = NULL;
}
