/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_ipc.c - kernels store into the other ranks' memory, which CUDA maps from process to
 * process: no library besides CUDA takes part, and ranks may share a GPU. One rank alone maps
 * nothing.
 *
 * When some ranks of a communicator that has ended go on without the others, none of those that go
 * on has a window of another one mapped any more. The lost ones may: kept_memory.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/agree.h"
#include "kernels/args/device_comm.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_ranks.h"
#include "transport/cuda/device_windows.h"
#include "transport/cuda/lost/kept_memory.h"
#include "transport/cuda/lost/process.h"
#include "transport/cuda/peer_windows.h"
#include "transport/transport.h"

/* CUDA shares whole blocks of this size; smaller allocations have a block in common. */
enum { BLOCK_BYTES = 2 << 20 };

struct ipc {
    struct epx_peer_windows windows; /* first */
    struct epx_process *processes;   /* [R] */
    /* handles of the window that is being made */
    cudaIpcMemHandle_t own, *handles; /* [R] */
};

static int can_reach(int own, int other)
{
    int can = 0;

    if (own == other)
        return 1;
    if (other < 0 || cudaDeviceCanAccessPeer(&can, own, other) != cudaSuccess)
        cudaGetLastError();
    return can;
}

/* CUDA maps no memory of a GPU that this process does not see. */
static int check_access(const struct epx_comm *comm, const int64_t *devices, char *why)
{
    int ordinals[EPX_MOST_DEVICE_RANKS];

    epx_device_find_ordinals(comm, devices, ordinals);
    for (int r = 0; r < comm->size; r++) {
        if (can_reach(ordinals[comm->rank], ordinals[r]))
            continue;
        snprintf(why, EPX_WHY_MAX, "the GPU of rank %d %s rank %d", r,
                 ordinals[r] < 0 ? "is not visible to" : "cannot be reached by that of",
                 comm->rank);
        return 0;
    }
    return 1;
}

static int check_devices(const struct epx_comm *comm, const int64_t *devices, char *why)
{
    return epx_device_check_nodes(comm, why) && check_access(comm, devices, why) &&
           epx_device_check_atomics(comm, devices, why) &&
           epx_device_check_room(comm, devices, why);
}

static int ipc_usable(struct epx_comm *comm, char *why)
{
    int64_t *devices = epx_device_numbers(comm, why);
    int usable = devices && check_devices(comm, devices, why);

    free(devices);
    return usable;
}

static int prepare(void *state)
{
    struct ipc *ipc = state;
    int ranks = ipc->windows.comm->size;

    ipc->handles = calloc((size_t)ranks, sizeof(*ipc->handles));
    ipc->processes = calloc((size_t)ranks, sizeof(*ipc->processes));
    EPX_FAIL_IF(!ipc->handles || !ipc->processes, EPX_ERR_NO_MEM, "no memory for %d ranks", ranks);
    return EPX_SUCCESS;
}

/* The ranks tell each other which processes they are. */
static int introduce(void *state)
{
    struct ipc *ipc = state;
    struct epx_process own;

    epx_process_self(&own);
    return epx_comm_allgather_bytes(ipc->windows.comm, &own, (int)sizeof(own), ipc->processes);
}

static int allocate(void *state, size_t bytes, struct epx_window *window)
{
    cudaError_t error;

    (void)state;
    epx_kept_memory_free();
    error = cudaMalloc((void **)&window->own, bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return epx_fail(EPX_ERR_NO_MEM, "no %zu bytes of device memory", bytes);
    }
    return error == cudaSuccess ? EPX_SUCCESS : epx_fail_cuda(error, "cudaMalloc");
}

/* Fails without an error of CUDA: the device is sound, and another transport may do. */
static int refuse(cudaError_t error, const char *call, int rank)
{
    cudaGetLastError();
    return epx_fail(EPX_ERR_TRANSPORT, "%s of the memory of rank %d: %s", call, rank,
                    cudaGetErrorString(error));
}

static int export_own(struct ipc *ipc, const struct epx_window *window)
{
    cudaError_t error = cudaIpcGetMemHandle(&ipc->own, window->own);

    return error == cudaSuccess ? EPX_SUCCESS
                                : refuse(error, "cudaIpcGetMemHandle", ipc->windows.comm->rank);
}

static int show(void *state, size_t bytes, struct epx_window *window)
{
    struct ipc *ipc = state;
    struct epx_comm *comm = ipc->windows.comm;

    (void)bytes;
    if (comm->size == 1)
        return EPX_SUCCESS;
    EPX_TRY(epx_comm_agree(comm, export_own(ipc, window)));
    return epx_comm_allgather_bytes(comm, &ipc->own, (int)sizeof(ipc->own), ipc->handles);
}

static int map(void *state, struct epx_window *window)
{
    const struct ipc *ipc = state;
    int self = ipc->windows.comm->rank;

    for (int r = 0; r < window->num_ranks; r++) {
        void *base = window->own;
        cudaError_t error = r == self ? cudaSuccess
                                      : cudaIpcOpenMemHandle(&base, ipc->handles[r],
                                                             cudaIpcMemLazyEnablePeerAccess);

        if (error != cudaSuccess)
            return refuse(error, "cudaIpcOpenMemHandle", r);
        window->address[r] = base;
    }
    return EPX_SUCCESS;
}

static int is_lost(const struct epx_comm *comm, int rank)
{
    return comm->lost && comm->lost[rank];
}

/* Unmaps what a rank has shown; of a lost rank it may stay mapped, as nobody waits for that. */
static int close_mapping(const struct epx_comm *comm, int rank, void *mapping)
{
    cudaError_t error = cudaIpcCloseMemHandle(mapping);

    if (error == cudaSuccess)
        return EPX_SUCCESS;
    if (!is_lost(comm, rank))
        return epx_fail_cuda(error, "cudaIpcCloseMemHandle");
    cudaGetLastError();
    EPX_LOG_INFO("the memory of rank %d, which was lost, stays mapped: %s", rank,
                 cudaGetErrorString(error));
    return EPX_SUCCESS;
}

static int unmap(void *state, struct epx_window *window)
{
    const struct epx_comm *comm = ((struct ipc *)state)->windows.comm;

    for (int r = 0; r < window->num_ranks; r++) {
        if (window->address[r] && r != comm->rank)
            EPX_TRY(close_mapping(comm, r, window->address[r]));
        window->address[r] = NULL;
    }
    return EPX_SUCCESS;
}

/* The processes of ranks that were left behind may have the memory mapped. */
static void free_window(void *state, struct epx_window *window)
{
    const struct ipc *ipc = state;
    const struct epx_comm *comm = ipc->windows.comm;
    struct epx_process lost[EPX_MOST_DEVICE_RANKS];
    int num = 0;

    if (!window->own)
        return;
    for (int r = 0; r < comm->size; r++)
        if (is_lost(comm, r))
            lost[num++] = ipc->processes[r];
    epx_kept_memory_add(ipc->windows.ordinal, window->own, window->mapping_bytes, lost, num);
}

static const struct epx_peer_windows_ops ipc_windows = {
    .granule_bytes = BLOCK_BYTES,
    .prepare = prepare,
    .connect = introduce,
    .allocate = allocate,
    .show = show,
    .map = map,
    .unmap = unmap,
    .free = free_window,
};

static void ipc_free(void *state)
{
    struct ipc *ipc = state;

    epx_peer_windows_close(ipc);
    epx_kept_memory_free();
    free(ipc->handles);
    free(ipc->processes);
}

static void ipc_reclaim(void *state)
{
    epx_peer_windows_reclaim(state);
    epx_kept_memory_free();
}

static int ipc_create(struct epx_transport *transport)
{
    return epx_peer_windows_open(transport->state, transport->comm, &ipc_windows);
}

const struct epx_transport_ops epx_transport_ipc = {
    .memory = EPX_MEMORY_CUDA,
    .usable = ipc_usable,
    .state_bytes = sizeof(struct ipc),
    .create = ipc_create,
    .free = ipc_free,
    .window_create = epx_peer_windows_create,
    .window_free = epx_peer_windows_free,
    .window_fence = epx_device_windows_fence,
    .leave = epx_peer_windows_leave,
    .reclaim = ipc_reclaim,
};
