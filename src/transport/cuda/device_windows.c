/* SPDX-License-Identifier: BSD-3-Clause */
/* device_windows.c - windows of device memory that no other rank reaches. */
#include "transport/cuda/device_windows.h"

#include "core/agree.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"

int epx_device_windows_open(struct epx_device_windows *windows, struct epx_comm *comm)
{
    windows->comm = comm;
    EPX_TRY_CUDA(epx_device_new_stream(&windows->stream));
    return EPX_SUCCESS;
}

/* A kept window that is large enough, and not much too large; NULL = none. */
static struct epx_window *take_kept(struct epx_device_windows *windows, size_t bytes)
{
    struct epx_window **link = &windows->kept, *window;

    while (*link && ((*link)->mapping_bytes < bytes || (*link)->mapping_bytes / 2 > bytes))
        link = &(*link)->next;
    window = *link;
    if (window) {
        *link = window->next;
        window->next = NULL;
    }
    return window;
}

/* Frees a window that no kernel uses. Only cudaFree, for the windows of a transport that keeps
 * them, waits for all kernels of the device. */
static void destroy(struct epx_device_windows *windows, struct epx_window *window)
{
    struct epx_device_scope scope;

    if (window->mapping && epx_device_enter(windows->ordinal, &scope) == cudaSuccess) {
        if (windows->keeps)
            cudaFree(window->mapping);
        else
            cudaFreeAsync(window->mapping, windows->stream);
        epx_device_leave(&scope);
    }
    window->own = NULL; /* it was the mapping */
    epx_window_free(window);
}

static void destroy_kept(struct epx_device_windows *windows)
{
    while (windows->kept) {
        struct epx_window *window = windows->kept;

        windows->kept = window->next;
        destroy(windows, window);
    }
}

static int allocate_kept(struct epx_device_windows *windows, struct epx_window *window)
{
    cudaError_t error = cudaMalloc(&window->mapping, window->mapping_bytes);

    if (error == cudaErrorMemoryAllocation && windows->kept) {
        cudaGetLastError();
        destroy_kept(windows);
        error = cudaMalloc(&window->mapping, window->mapping_bytes);
    }
    EPX_TRY_CUDA(error);
    return EPX_SUCCESS;
}

static int allocate(struct epx_device_windows *windows, size_t bytes, struct epx_window *window)
{
    window->mapping_bytes = bytes ? bytes : 1;
    if (windows->keeps)
        return allocate_kept(windows, window);
    EPX_TRY_CUDA(cudaMallocAsync(&window->mapping, window->mapping_bytes, windows->stream));
    EPX_TRY_CUDA(cudaStreamSynchronize(windows->stream));
    return EPX_SUCCESS;
}

/* Gives a window its number and its memory; every rank's address is this rank's own. */
static int init(struct epx_device_windows *windows, size_t bytes, struct epx_window *window)
{
    EPX_FAIL_IF(!window, EPX_ERR_NO_MEM, "no memory for a window");
    window->number = windows->next_number++;
    window->own_bytes = bytes;
    if (!window->mapping)
        EPX_TRY(allocate(windows, bytes, window));
    window->own = window->mapping;
    for (int r = 0; r < windows->comm->size; r++)
        window->address[r] = window->own;
    return EPX_SUCCESS;
}

int epx_device_windows_create(void *state, size_t bytes, struct epx_window **result)
{
    struct epx_device_windows *windows = state;
    struct epx_window *window = take_kept(windows, bytes);
    struct epx_device_scope scope;
    cudaError_t error = epx_device_enter(windows->ordinal, &scope);
    int rc;

    if (!window)
        window = epx_window_empty(windows->comm->size);
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

void epx_device_windows_free(void *state, struct epx_window *window)
{
    struct epx_device_windows *windows = state;

    if (!window)
        return;
    window->next = windows->laid_aside;
    windows->laid_aside = window;
}

static void reclaim(struct epx_device_windows *windows, struct epx_window *window)
{
    if (!windows->keeps || !window->mapping) {
        destroy(windows, window);
        return;
    }
    window->next = windows->kept;
    windows->kept = window;
}

/* Synchronizes the stream at the end, because only then the memory pool of CUDA gives back what is
 * free. */
void epx_device_windows_reclaim(void *state)
{
    struct epx_device_windows *windows = state;

    while (windows->laid_aside) {
        struct epx_window *window = windows->laid_aside;

        windows->laid_aside = window->next;
        reclaim(windows, window);
    }
    if (windows->stream)
        cudaStreamSynchronize(windows->stream);
}

/* For a transport that has ended its messages when the proxy has ended, or that gives nobody the
 * memory that they go to, or that lost ranks have mapped. */
int epx_device_windows_fence(void *state, struct epx_window *window)
{
    (void)state;
    (void)window;
    return EPX_SUCCESS;
}

void epx_device_windows_close(struct epx_device_windows *windows)
{
    epx_device_windows_reclaim(windows);
    destroy_kept(windows);
    if (windows->stream)
        cudaStreamDestroy(windows->stream);
    windows->stream = NULL;
}
