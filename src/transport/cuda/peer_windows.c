/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_windows.c - windows of device memory that kernels of all ranks store into: their numbers,
 * the table of addresses that kernels read, and when they are given back.
 *
 * Mapping depends on order: NCCL places windows by counting, so all ranks must make and free them
 * in the same order; and memory that CUDA shares may be freed only when no rank has it mapped any
 * more. But a freed route lives until its last operation ends, at another time on each rank. So a
 * freed window is only laid aside; a collective call that makes a window or frees memory first
 * completes what is in flight, then gives back the windows laid aside, in the order of their
 * numbers.
 *
 * Of a communicator that has ended the ranks that go on unmap all windows before they make another
 * one (epx_peer_windows_leave); from then on each of them gives its windows back alone.
 */
#include "transport/cuda/peer_windows.h"
#include "core/agree.h"
#include "core/progress.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"
#include "kernels/layout.h"

enum { MOST_WINDOWS = 1 << 16 };

static int init(struct epx_peer_windows *windows)
{
    size_t entries = (size_t)MOST_WINDOWS * (size_t)windows->comm->size;

    EPX_TRY_CUDA(epx_device_new_stream(&windows->stream));
    EPX_TRY_CUDA(cudaMalloc((void **)&windows->table, entries * sizeof(*windows->table)));
    return windows->ops->prepare(windows);
}

static int init_all(void *state)
{
    struct epx_peer_windows *windows = state;

    EPX_TRY(epx_comm_agree(windows->comm, init(windows)));
    return windows->ops->connect ? windows->ops->connect(windows) : EPX_SUCCESS;
}

int epx_peer_windows_open(void *state, struct epx_comm *comm,
                          const struct epx_peer_windows_ops *ops)
{
    struct epx_peer_windows *windows = state;

    windows->ops = ops;
    windows->comm = comm;
    return epx_device_run(comm, &windows->ordinal, init_all, windows);
}

static void destroy(struct epx_peer_windows *windows, struct epx_window *window)
{
    windows->ops->free(windows, window);
    window->own = NULL; /* the transport has freed it */
    epx_window_free(window);
}

static int unmap_all(struct epx_peer_windows *windows, struct epx_window *first)
{
    for (struct epx_window *w = first; w; w = w->next)
        EPX_TRY(windows->ops->unmap(windows, w));
    return EPX_SUCCESS;
}

int epx_peer_windows_leave(void *state)
{
    struct epx_peer_windows *windows = state;

    EPX_TRY(unmap_all(windows, windows->laid_aside));
    return unmap_all(windows, windows->in_use);
}

/* Frees the windows laid aside, which nothing on this rank uses any more. They are kept if rc is
 * an error: this rank has lost its device. Where memory is mapped (unmap), all ranks then keep
 * theirs. The ranks have left one another if the communicator is finished. */
static void give_back(struct epx_peer_windows *windows, int rc)
{
    if (!windows->laid_aside)
        return;
    if (windows->ops->unmap && !windows->comm->finished)
        rc = epx_comm_agree(windows->comm,
                            rc == EPX_SUCCESS ? unmap_all(windows, windows->laid_aside) : rc);
    while (rc == EPX_SUCCESS && windows->laid_aside) {
        struct epx_window *window = windows->laid_aside;

        windows->laid_aside = window->next;
        destroy(windows, window);
    }
}

void epx_peer_windows_reclaim(void *state)
{
    struct epx_peer_windows *windows = state;
    struct epx_device_scope scope;
    int entered = epx_device_enter(windows->ordinal, &scope) == cudaSuccess;

    give_back(windows, entered ? EPX_SUCCESS : EPX_ERR_CUDA);
    if (entered)
        epx_device_leave(&scope);
}

void epx_peer_windows_close(void *state)
{
    struct epx_peer_windows *windows = state;
    struct epx_device_scope scope;

    epx_peer_windows_reclaim(windows);
    if (epx_device_enter(windows->ordinal, &scope) != cudaSuccess)
        return;
    if (windows->ops->disconnect)
        windows->ops->disconnect(windows);
    cudaFree(windows->table);
    if (windows->stream)
        cudaStreamDestroy(windows->stream);
    epx_device_leave(&scope);
}

static void enter_use(struct epx_peer_windows *windows, struct epx_window *window)
{
    window->next = windows->in_use;
    windows->in_use = window;
}

/* Takes one that was never in use as well. */
static void take_out(struct epx_peer_windows *windows, struct epx_window *window)
{
    struct epx_window **link = &windows->in_use;

    while (*link && *link != window)
        link = &(*link)->next;
    if (*link)
        *link = window->next;
    window->next = NULL;
}

void epx_peer_windows_free(void *state, struct epx_window *window)
{
    struct epx_peer_windows *windows = state;
    struct epx_window **link = &windows->laid_aside;

    if (!window)
        return;
    take_out(windows, window);
    while (*link && (*link)->number < window->number)
        link = &(*link)->next;
    window->next = *link;
    *link = window;
}

/* Finds where each rank's part is mapped, for the host and, in a row of the table, for kernels. */
static int find_peers(struct epx_peer_windows *windows, struct epx_window *window)
{
    size_t ranks = (size_t)windows->comm->size;

    window->device_address = windows->table + (size_t)window->number * ranks;
    EPX_TRY(windows->ops->map(windows, window));
    EPX_TRY_CUDA(cudaMemcpyAsync(window->device_address, window->address, ranks * sizeof(char *),
                                 cudaMemcpyHostToDevice, windows->stream));
    EPX_TRY_CUDA(cudaStreamSynchronize(windows->stream));
    return EPX_SUCCESS;
}

static int init_window(struct epx_peer_windows *windows, size_t own_bytes,
                       struct epx_window *window)
{
    const struct epx_peer_windows_ops *ops = windows->ops;
    struct epx_comm *comm = windows->comm;
    int64_t most = 0;
    size_t bytes;

    EPX_TRY(epx_comm_max(comm, (int64_t)(own_bytes ? own_bytes : 1), &most));
    EPX_FAIL_IF(most > INT64_MAX / 2, EPX_ERR_NO_MEM, "no memory for a window of %lld bytes",
                (long long)most);
    bytes = (size_t)epx_round_up(most, (int64_t)ops->granule_bytes);
    window->mapping_bytes = bytes;
    EPX_TRY(epx_comm_agree(comm, ops->allocate(windows, bytes, window)));
    EPX_TRY(ops->show(windows, bytes, window));
    EPX_TRY(epx_comm_agree(comm, find_peers(windows, window)));
    window->own_bytes = own_bytes;
    return EPX_SUCCESS;
}

static int make_window(const struct epx_peer_windows *windows, int number,
                       struct epx_window **result)
{
    struct epx_window *window = epx_window_empty(windows->comm->size);

    *result = window;
    EPX_FAIL_IF(!window, EPX_ERR_NO_MEM, "no memory for a window");
    window->number = number;
    EPX_FAIL_IF(number >= MOST_WINDOWS, EPX_ERR_NO_MEM,
                "a communicator can make %d windows in its life", MOST_WINDOWS);
    return EPX_SUCCESS;
}

/* Completes what is in flight first: only then have all ranks laid the same windows aside. */
static int create_window(struct epx_peer_windows *windows, int rc, size_t own_bytes,
                         struct epx_window **result)
{
    struct epx_comm *comm = windows->comm;
    struct epx_window *window = NULL;
    int number = windows->next_number++; /* counted also where there is no memory */

    epx_comm_drain(comm);
    if (comm->finished)
        return epx_fail_quietly(comm->finished, comm->finish_message);
    give_back(windows, rc);
    rc = epx_comm_agree(comm, rc == EPX_SUCCESS ? make_window(windows, number, &window) : rc);
    if (rc != EPX_SUCCESS) {
        epx_window_free(window);
        return rc;
    }
    rc = init_window(windows, own_bytes, window);
    if (rc == EPX_SUCCESS) {
        enter_use(windows, window);
        *result = window;
        return rc;
    }
    epx_peer_windows_free(windows, window);
    if (!comm->finished)
        give_back(windows, EPX_SUCCESS);
    return rc;
}

int epx_peer_windows_create(void *state, size_t own_bytes, struct epx_window **result)
{
    struct epx_peer_windows *windows = state;
    struct epx_device_scope scope;
    cudaError_t error = epx_device_enter(windows->ordinal, &scope);
    int rc = error == cudaSuccess ? EPX_SUCCESS : epx_fail_cuda(error, "cudaSetDevice");

    rc = create_window(windows, rc, own_bytes, result);
    if (error == cudaSuccess)
        epx_device_leave(&scope);
    return rc;
}
