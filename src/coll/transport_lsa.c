/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_lsa.c - kernels store into the other GPUs' memory: NCCL's symmetric windows, whose
 * peers' addresses are looked up once, so that nothing else knows of NCCL. One rank alone has
 * plain device memory.
 *
 * NCCL places windows by counting: all ranks must register and deregister in the same order. But
 * a route that is freed goes with its last operation, which ends on each rank at another time. So
 * a freed window is only laid aside; a collective call that makes a window or frees memory first
 * completes what is in flight, then deregisters those laid aside, by number.
 */
#include "transport_lsa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agree.h"
#include "cuda_errors.h"
#include "device_ranks.h"
#include "device_scope.h"
#include "progress.h"
#include "transport.h"
#include "transport_nccl_ranks.h"

enum { MOST_WINDOWS = 1 << 16, WINDOW_BYTES = 4096 };

/* What a window is to this transport. */
struct mapping {
    void *base;
    ncclWindow_t handle; /* NULL on one rank */
};

struct lsa {
    struct epx_comm *comm;
    int ordinal; /* of the GPU */
    ncclComm_t nccl;
    cudaStream_t stream;
    char **table;        /* [MOST_WINDOWS][R] device memory */
    int next_number;
    struct epx_window *laid_aside; /* by number */
};

/* The rank that has the visible GPU, -1 = none. */
static int rank_of_device(const struct epx_comm *comm, const int64_t *devices, int ordinal)
{
    struct cudaDeviceProp properties;

    if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess)
        return -1;
    for (int r = 0; r < comm->size; r++)
        if (devices[r] == epx_device_number(&properties))
            return r;
    return -1;
}

/*
 * A rank whose memory this GPU reaches without atomics, which the flags need, or -1. Of GPUs that
 * this process does not see NCCL tells later whether they can be reached.
 */
static int rank_without_atomics(const struct epx_comm *comm, const int64_t *devices)
{
    int count = 0, own = 0, without = -1;

    if (cudaGetDeviceCount(&count) != cudaSuccess || cudaGetDevice(&own) != cudaSuccess)
        count = 0;
    for (int d = 0; d < count && without < 0; d++) {
        int rank = d == own ? -1 : rank_of_device(comm, devices, d), atomics = 1;

        if (rank >= 0 && cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported,
                                                   own, d) == cudaSuccess && !atomics)
            without = rank;
    }
    cudaGetLastError();
    return without;
}

/* Each rank has a usable GPU of its own. */
static int check_atomics(const struct epx_comm *comm, const int64_t *devices, char *why)
{
    int without = rank_without_atomics(comm, devices);

    if (without >= 0)
        snprintf(why, EPX_WHY_MAX, "the GPU of rank %d has no atomics on the memory of that of "
                 "rank %d", comm->rank, without);
    return without < 0;
}

static int check_nodes(const struct epx_comm *comm, char *why)
{
    if (comm->num_nodes == 1 && comm->real_nodes == 1)
        return 1;
    snprintf(why, EPX_WHY_MAX, "the ranks are on %d nodes%s", comm->num_nodes,
             comm->params.ranks_per_node ? " (epx_ranks_per_node)" : "");
    return 0;
}

static int lsa_usable(struct epx_comm *comm, char *why)
{
    int64_t *devices = epx_nccl_devices(comm, why);
    int usable = devices && check_nodes(comm, why) && check_atomics(comm, devices, why);

    free(devices);
    return usable;
}

static void destroy_mapping(struct mapping *mapping, ncclComm_t nccl)
{
    if (mapping->handle)
        ncclCommWindowDeregister(nccl, mapping->handle);
    if (mapping->base && nccl)
        ncclMemFree(mapping->base);
    else if (mapping->base)
        cudaFree(mapping->base);
    free(mapping);
}

static void destroy_window(struct lsa *lsa, struct epx_window *window)
{
    if (window->mapping)
        destroy_mapping(window->mapping, lsa->nccl);
    window->own = NULL; /* it was the mapping's */
    epx_window_free(window);
}

/* Nothing on this rank uses them any more. */
static void destroy_laid_aside(struct lsa *lsa)
{
    while (lsa->laid_aside) {
        struct epx_window *window = lsa->laid_aside;

        lsa->laid_aside = window->next;
        destroy_window(lsa, window);
    }
}

static void lsa_window_free(void *state, struct epx_window *window)
{
    struct lsa *lsa = state;
    struct epx_window **link = &lsa->laid_aside;

    if (!window)
        return;
    while (*link && (*link)->number < window->number)
        link = &(*link)->next;
    window->next = *link;
    *link = window;
}

/* NCCL does not say that it was memory that it lacked. */
static int is_too_much(size_t bytes)
{
    size_t unused = 0, all;

    return cudaMemGetInfo(&unused, &all) == cudaSuccess && unused < bytes;
}

static int allocate(struct lsa *lsa, size_t bytes, struct mapping *mapping)
{
    ncclResult_t result;

    if (!lsa->nccl) {
        EPX_TRY_CUDA(cudaMalloc(&mapping->base, bytes));
        return EPX_SUCCESS;
    }
    result = ncclMemAlloc(&mapping->base, bytes);
    EPX_FAIL_IF(result != ncclSuccess && is_too_much(bytes), EPX_ERR_NO_MEM,
                "no %zu bytes of device memory", bytes);
    EPX_FAIL_IF(result != ncclSuccess, EPX_ERR_TRANSPORT, "ncclMemAlloc: %s",
                ncclGetErrorString(result));
    return EPX_SUCCESS;
}

static int find_peers(struct lsa *lsa, struct epx_window *window, struct mapping *mapping)
{
    struct epx_comm *comm = lsa->comm;
    char **row = lsa->table + (size_t)window->number * (size_t)comm->size;
    size_t row_bytes = (size_t)comm->size * sizeof(*row);

    if (mapping->handle)
        EPX_TRY_LAUNCH(epx_lsa_resolve(mapping->handle, mapping->base, comm->rank, comm->size, row,
                                       lsa->stream));
    else
        EPX_TRY_CUDA(cudaMemcpyAsync(row, &mapping->base, sizeof(mapping->base),
                                     cudaMemcpyHostToDevice, lsa->stream));
    EPX_TRY_CUDA(cudaMemcpyAsync(window->address, row, row_bytes, cudaMemcpyDeviceToHost,
                                 lsa->stream));
    EPX_TRY_CUDA(cudaStreamSynchronize(lsa->stream));
    window->device_address = row;
    return EPX_SUCCESS;
}

static int register_window(struct lsa *lsa, size_t bytes, struct mapping *mapping)
{
    if (!lsa->nccl)
        return EPX_SUCCESS;
    EPX_TRY_NCCL(ncclCommWindowRegister(lsa->nccl, mapping->base, bytes, &mapping->handle,
                                    NCCL_WIN_COLL_SYMMETRIC));
    EPX_FAIL_IF(!mapping->handle, EPX_ERR_TRANSPORT,
                "NCCL gives no symmetric window: not all GPUs can reach each other's memory");
    return EPX_SUCCESS;
}

static int check_reach(const struct lsa *lsa)
{
    int reach = lsa->nccl ? epx_lsa_reach(lsa->nccl) : 1;

    EPX_FAIL_IF(reach < lsa->comm->size, EPX_ERR_TRANSPORT,
                "only %d of %d GPUs can reach each other's memory", reach, lsa->comm->size);
    return EPX_SUCCESS;
}

static int init_window(struct lsa *lsa, size_t bytes, struct epx_window *window)
{
    struct epx_comm *comm = lsa->comm;
    struct mapping *mapping = window->mapping;

    EPX_TRY(epx_comm_agree(comm, allocate(lsa, bytes, mapping)));
    EPX_TRY(epx_comm_agree(comm, register_window(lsa, bytes, mapping)));
    EPX_TRY(epx_comm_agree(comm, check_reach(lsa)));
    EPX_TRY(epx_comm_agree(comm, find_peers(lsa, window, mapping)));
    window->own = mapping->base;
    window->mapping_bytes = bytes;
    return EPX_SUCCESS;
}

static int make_window(struct lsa *lsa, size_t own_bytes, struct epx_window **result)
{
    struct epx_window *window = epx_window_empty(lsa->comm->size);
    int number = lsa->next_number++; /* counted also where there is no memory */

    *result = window;
    if (window) {
        window->mapping = calloc(1, sizeof(struct mapping));
        window->number = number;
        window->own_bytes = own_bytes;
    }
    EPX_FAIL_IF(!window || !window->mapping, EPX_ERR_NO_MEM, "no memory for a window");
    EPX_FAIL_IF(window->number >= MOST_WINDOWS, EPX_ERR_NO_MEM,
                "a communicator can make %d windows in its life", MOST_WINDOWS);
    return EPX_SUCCESS;
}

static int create_window(struct lsa *lsa, size_t own_bytes, struct epx_window **result)
{
    struct epx_window *window = NULL;
    int64_t most = 0;
    int rc;

    /* Only once all is complete have all ranks laid the same windows aside. */
    epx_comm_drain(lsa->comm);
    if (lsa->comm->finished)
        return epx_fail_quietly(lsa->comm->finished, lsa->comm->finish_message);
    destroy_laid_aside(lsa);
    rc = epx_comm_agree(lsa->comm, make_window(lsa, own_bytes, &window));
    if (rc == EPX_SUCCESS)
        rc = epx_comm_max(lsa->comm, (int64_t)(own_bytes ? own_bytes : 1), &most);
    if (rc == EPX_SUCCESS)
        rc = init_window(lsa, (size_t)epx_round_up(most, WINDOW_BYTES), window);
    if (rc != EPX_SUCCESS) {
        if (window && !lsa->comm->finished)
            destroy_window(lsa, window);
        return rc;
    }
    *result = window;
    return EPX_SUCCESS;
}

static int lsa_window_create(void *state, size_t own_bytes, struct epx_window **result)
{
    struct lsa *lsa = state;
    struct epx_device_scope scope;
    cudaError_t error = epx_device_enter(lsa->ordinal, &scope);
    int rc;

    if (error != cudaSuccess)
        return epx_comm_agree(lsa->comm, epx_fail_cuda(error, "cudaSetDevice"));
    rc = create_window(lsa, own_bytes, result);
    epx_device_leave(&scope);
    return rc;
}

static void lsa_reclaim(void *state)
{
    struct lsa *lsa = state;
    struct epx_device_scope scope;

    if (epx_device_enter(lsa->ordinal, &scope) != cudaSuccess)
        return;
    destroy_laid_aside(lsa);
    epx_device_leave(&scope);
}

static void free_cuda(struct lsa *lsa)
{
    destroy_laid_aside(lsa);
    if (lsa->nccl)
        ncclCommDestroy(lsa->nccl);
    cudaFree(lsa->table);
    if (lsa->stream)
        cudaStreamDestroy(lsa->stream);
}

static void lsa_free(void *state)
{
    struct lsa *lsa = state;
    struct epx_device_scope scope;

    if (!lsa)
        return;
    if (epx_device_enter(lsa->ordinal, &scope) == cudaSuccess) {
        free_cuda(lsa);
        epx_device_leave(&scope);
    }
    free(lsa);
}

static int init(struct lsa *lsa)
{
    size_t entries = (size_t)MOST_WINDOWS * (size_t)lsa->comm->size;

    EPX_TRY_CUDA(cudaStreamCreateWithFlags(&lsa->stream, cudaStreamNonBlocking));
    EPX_TRY_CUDA(cudaMalloc((void **)&lsa->table, entries * sizeof(*lsa->table)));
    EPX_TRY_LAUNCH(epx_lsa_load());
    return EPX_SUCCESS;
}

static int init_all(struct lsa *lsa)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    EPX_TRY(epx_comm_agree(lsa->comm, init(lsa)));
    config.minCTAs = config.maxCTAs = 1; /* enough for a communicator that moves nothing */
    return epx_nccl_connect(lsa->comm, &config, &lsa->nccl);
}

static int lsa_create(struct epx_comm *comm, void **state)
{
    struct lsa *lsa = calloc(1, sizeof(*lsa));
    struct epx_device_scope scope;
    cudaError_t error;
    int rc;

    *state = lsa;
    if (!lsa)
        return epx_comm_agree(comm, epx_fail(EPX_ERR_NO_MEM, "no memory for transport lsa"));
    lsa->comm = comm;
    error = cudaGetDevice(&lsa->ordinal);
    if (error == cudaSuccess)
        error = epx_device_enter(lsa->ordinal, &scope);
    if (error != cudaSuccess)
        return epx_comm_agree(comm, epx_fail_cuda(error, "cudaGetDevice"));
    rc = init_all(lsa);
    epx_device_leave(&scope);
    return rc;
}

const struct epx_transport_ops epx_transport_lsa = {
    .memory = EPX_MEMORY_CUDA,
    .usable = lsa_usable,
    .create = lsa_create,
    .free = lsa_free,
    .window_create = lsa_window_create,
    .window_free = lsa_window_free,
    .reclaim = lsa_reclaim,
    .direct = 1,
};
