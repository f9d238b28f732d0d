/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_lsa.c - kernels store into the other GPUs' memory, in NCCL's symmetric windows. The
 * addresses of the peers' parts are looked up once, so that nothing else knows of NCCL. One rank
 * alone has plain device memory.
 */
#include "transport/nccl/lsa_window.h"

#include <stdlib.h>

#include "core/agree.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_ranks.h"
#include "transport/cuda/peer_windows.h"
#include "transport/nccl/nccl_open.h"
#include "transport/nccl/nccl_ranks.h"
#include "transport/transport.h"

enum { WINDOW_BYTES = 4096 };

struct lsa {
    struct epx_peer_windows windows; /* first */
    ncclComm_t nccl;                 /* NULL on one rank */
};

static int lsa_usable(struct epx_comm *comm, char *why)
{
    int64_t *devices = epx_nccl_devices(comm, why);
    int usable = devices && epx_device_check_nodes(comm, why) &&
                 epx_device_check_atomics(comm, devices, why);

    free(devices);
    return usable;
}

static int load(void *state)
{
    (void)state;
    EPX_TRY_LAUNCH(epx_lsa_load());
    return EPX_SUCCESS;
}

static int connect(void *state)
{
    struct lsa *lsa = state;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.minCTAs = config.maxCTAs = 1; /* enough for a communicator that moves nothing */
    return epx_nccl_connect(lsa->windows.comm, &config, &lsa->nccl);
}

static void disconnect(void *state)
{
    struct lsa *lsa = state;

    if (lsa->nccl)
        ncclCommDestroy(lsa->nccl);
}

/* Whether NCCL failed because memory is short, which it does not tell itself. */
static int is_too_much(size_t bytes)
{
    size_t unused = 0, all;

    return cudaMemGetInfo(&unused, &all) == cudaSuccess && unused < bytes;
}

static int allocate(void *state, size_t bytes, struct epx_window *window)
{
    struct lsa *lsa = state;
    ncclResult_t result;

    if (!lsa->nccl) {
        EPX_TRY_CUDA(cudaMalloc((void **)&window->own, bytes));
        return EPX_SUCCESS;
    }
    result = ncclMemAlloc((void **)&window->own, bytes);
    EPX_FAIL_IF(result != ncclSuccess && is_too_much(bytes), EPX_ERR_NO_MEM,
                "no %zu bytes of device memory", bytes);
    EPX_FAIL_IF(result != ncclSuccess, EPX_ERR_TRANSPORT, "ncclMemAlloc: %s",
                ncclGetErrorString(result));
    return EPX_SUCCESS;
}

static int register_window(struct lsa *lsa, size_t bytes, struct epx_window *window)
{
    ncclWindow_t handle = NULL;

    if (!lsa->nccl)
        return EPX_SUCCESS;
    EPX_TRY_NCCL(
        ncclCommWindowRegister(lsa->nccl, window->own, bytes, &handle, NCCL_WIN_COLL_SYMMETRIC));
    window->mapping = handle;
    EPX_FAIL_IF(!handle, EPX_ERR_TRANSPORT,
                "NCCL gives no symmetric window: not all GPUs can reach each other's memory");
    return EPX_SUCCESS;
}

static int check_reach(const struct lsa *lsa)
{
    void *team_lsa = lsa->nccl ? epx_nccl_find("ncclTeamLsa") : NULL;
    int reach = team_lsa ? epx_lsa_reach(team_lsa, lsa->nccl) : 1;

    EPX_FAIL_IF(reach < lsa->windows.comm->size, EPX_ERR_TRANSPORT,
                "only %d of %d GPUs can reach each other's memory", reach, lsa->windows.comm->size);
    return EPX_SUCCESS;
}

static int show(void *state, size_t bytes, struct epx_window *window)
{
    struct lsa *lsa = state;

    EPX_TRY(epx_comm_agree(lsa->windows.comm, register_window(lsa, bytes, window)));
    return epx_comm_agree(lsa->windows.comm, check_reach(lsa));
}

/* Where NCCL is of another version than this was built with: whether the kernel read addresses of
 * GPU memory in its window. */
static int check_addresses(const struct epx_window *window, int num_ranks)
{
    for (int r = 0; !epx_nccl_is_of_build() && r < num_ranks; r++) {
        struct cudaPointerAttributes found = {0};

        EPX_TRY_CUDA(cudaPointerGetAttributes(&found, window->address[r]));
        EPX_FAIL_IF(found.type != cudaMemoryTypeDevice, EPX_ERR_TRANSPORT,
                    "NCCL shows no memory of rank %d: it is not of the version of the build", r);
    }
    return EPX_SUCCESS;
}

/* A kernel asks NCCL for the addresses and writes them where other kernels will find them. */
static int map(void *state, struct epx_window *window)
{
    struct lsa *lsa = state;
    const struct epx_comm *comm = lsa->windows.comm;
    cudaStream_t stream = lsa->windows.stream;
    size_t row_bytes = (size_t)comm->size * sizeof(*window->address);

    window->address[comm->rank] = window->own;
    if (!lsa->nccl)
        return EPX_SUCCESS;
    EPX_TRY_LAUNCH(epx_lsa_resolve(window->mapping, window->own, comm->rank, comm->size,
                                   window->device_address, stream));
    EPX_TRY_CUDA(cudaMemcpyAsync(window->address, window->device_address, row_bytes,
                                 cudaMemcpyDeviceToHost, stream));
    EPX_TRY_CUDA(cudaStreamSynchronize(stream));
    return check_addresses(window, comm->size);
}

static void free_window(void *state, struct epx_window *window)
{
    struct lsa *lsa = state;

    if (window->mapping)
        ncclCommWindowDeregister(lsa->nccl, window->mapping);
    if (window->own && lsa->nccl)
        ncclMemFree(window->own);
    else if (window->own)
        cudaFree(window->own);
}

static const struct epx_peer_windows_ops lsa_windows = {
    .granule_bytes = WINDOW_BYTES,
    .prepare = load,
    .connect = connect,
    .disconnect = disconnect,
    .allocate = allocate,
    .show = show,
    .map = map,
    .free = free_window,
};

/* NCCL frees windows by a call that all its ranks make. */
static int lsa_window_fence(void *state, struct epx_window *window)
{
    (void)state;
    (void)window;
    return epx_fail_quietly(EPX_ERR_UNSUPPORTED,
                            "NCCL does not free windows of transport lsa without the ranks that "
                            "were lost; transport ipc gives memory back");
}

static int lsa_create(struct epx_transport *transport)
{
    return epx_peer_windows_open(transport->state, transport->comm, &lsa_windows);
}

const struct epx_transport_ops epx_transport_lsa = {
    .memory = EPX_MEMORY_CUDA,
    .usable = lsa_usable,
    .state_bytes = sizeof(struct lsa),
    .create = lsa_create,
    .free = epx_peer_windows_close,
    .window_create = epx_peer_windows_create,
    .window_free = epx_peer_windows_free,
    .window_fence = lsa_window_fence,
    .reclaim = epx_peer_windows_reclaim,
};
