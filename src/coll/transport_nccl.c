/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_nccl.c - messages between device memories by ncclSend and ncclRecv, with a NCCL
 * communicator of its own that only the proxy's thread uses once it is made. Behind its bytes, if
 * there are any, every rank gets the number of the exchange, so that a rank that was waited for in
 * vain can be told from the others.
 */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include "agree.h"
#include "cuda_errors.h"
#include "device.h"
#include "device_scope.h"
#include "transport.h"
#include "transport_nccl_ranks.h"

enum { STAMP_BYTES = 8 };

struct nccl {
    struct epx_comm *comm;
    int ordinal; /* of the GPU */
    ncclComm_t nccl; /* NULL on one rank */
    cudaStream_t stream;
    int next_number;
    struct epx_window *laid_aside; /* kernels may still be queued that use them */
};

static int nccl_usable(struct epx_comm *comm, char *why)
{
    int64_t *devices = epx_nccl_devices(comm, why);
    int usable = devices != NULL;

    free(devices);
    return usable;
}

static int exchange_with(const struct nccl *nccl, const struct epx_exchange *exchange, int rank,
                         cudaStream_t stream)
{
    const struct epx_message *message = &exchange->message[rank];

    if (message->send_bytes)
        EPX_TRY_NCCL(ncclSend(exchange->send + message->send_at, (size_t)message->send_bytes,
                              ncclInt8, rank, nccl->nccl, stream));
    if (message->recv_bytes)
        EPX_TRY_NCCL(ncclRecv(exchange->recv + message->recv_at, (size_t)message->recv_bytes,
                              ncclInt8, rank, nccl->nccl, stream));
    EPX_TRY_NCCL(ncclSend(exchange->stamp, STAMP_BYTES, ncclInt8, rank, nccl->nccl, stream));
    EPX_TRY_NCCL(ncclRecv(exchange->arrived + rank * STAMP_BYTES, STAMP_BYTES, ncclInt8, rank,
                          nccl->nccl, stream));
    return EPX_SUCCESS;
}

static int exchange_with_all(const struct nccl *nccl, const struct epx_exchange *exchange,
                             cudaStream_t stream)
{
    int rank = nccl->comm->rank, size = nccl->comm->size, rc = EPX_SUCCESS;

    EPX_TRY_NCCL(ncclGroupStart());
    for (int i = 1; i < size && rc == EPX_SUCCESS; i++)
        rc = exchange_with(nccl, exchange, (rank + i) % size, stream);
    EPX_TRY_NCCL(ncclGroupEnd());
    return rc;
}

static int nccl_exchange(void *state, const struct epx_exchange *exchange, void *stream)
{
    const struct nccl *nccl = state;
    const struct epx_message *own = &exchange->message[nccl->comm->rank];

    if (own->send_bytes)
        EPX_TRY_CUDA(cudaMemcpyAsync(exchange->recv + own->recv_at, exchange->send + own->send_at,
                                     (size_t)own->send_bytes, cudaMemcpyDeviceToDevice, stream));
    return nccl->nccl ? exchange_with_all(nccl, exchange, stream) : EPX_SUCCESS;
}

static void nccl_abort(void *state)
{
    struct nccl *nccl = state;

    if (nccl->nccl)
        ncclCommAbort(nccl->nccl);
    nccl->nccl = NULL;
}

/* No rank reaches another's: all addresses are this rank's own. */
static int init_window(struct nccl *nccl, size_t bytes, struct epx_window *window)
{
    EPX_FAIL_IF(!window, EPX_ERR_NO_MEM, "no memory for a window");
    window->number = nccl->next_number++;
    window->own_bytes = window->mapping_bytes = bytes;
    EPX_TRY_CUDA(cudaMallocAsync(&window->mapping, bytes ? bytes : 1, nccl->stream));
    EPX_TRY_CUDA(cudaStreamSynchronize(nccl->stream));
    window->own = window->mapping;
    for (int r = 0; r < nccl->comm->size; r++)
        window->address[r] = window->own;
    return EPX_SUCCESS;
}

/* Does not wait for kernels, of which none uses the window. */
static void destroy_window(struct nccl *nccl, struct epx_window *window)
{
    struct epx_device_scope scope;

    if (window->mapping && epx_device_enter(nccl->ordinal, &scope) == cudaSuccess) {
        cudaFreeAsync(window->mapping, nccl->stream);
        epx_device_leave(&scope);
    }
    window->own = NULL; /* it was the mapping's */
    epx_window_free(window);
}

static void nccl_window_free(void *state, struct epx_window *window)
{
    struct nccl *nccl = state;

    if (!window)
        return;
    window->next = nccl->laid_aside;
    nccl->laid_aside = window;
}

/* A pool of memory gives back what is free when a stream is synchronized. */
static void nccl_reclaim(void *state)
{
    struct nccl *nccl = state;

    while (nccl->laid_aside) {
        struct epx_window *window = nccl->laid_aside;

        nccl->laid_aside = window->next;
        destroy_window(nccl, window);
    }
    if (nccl->stream)
        cudaStreamSynchronize(nccl->stream);
}

static int nccl_window_create(void *state, size_t bytes, struct epx_window **result)
{
    struct nccl *nccl = state;
    struct epx_window *window = epx_window_empty(nccl->comm->size);
    struct epx_device_scope scope;
    cudaError_t error = epx_device_enter(nccl->ordinal, &scope);
    int rc;

    if (error != cudaSuccess) {
        rc = epx_fail_cuda(error, "cudaSetDevice");
    } else {
        rc = init_window(nccl, bytes, window);
        epx_device_leave(&scope);
    }
    rc = epx_comm_agree(nccl->comm, rc);
    if (rc != EPX_SUCCESS) {
        nccl_window_free(nccl, window);
        return rc;
    }
    *result = window;
    return EPX_SUCCESS;
}

static void nccl_free(void *state)
{
    struct nccl *nccl = state;
    struct epx_device_scope scope;

    if (!nccl)
        return;
    if (epx_device_enter(nccl->ordinal, &scope) == cudaSuccess) {
        if (nccl->nccl)
            ncclCommDestroy(nccl->nccl);
        nccl_reclaim(nccl);
        if (nccl->stream)
            cudaStreamDestroy(nccl->stream);
        epx_device_leave(&scope);
    }
    free(nccl);
}

/*
 * Everything that NCCL and CUDA load or connect when it is first used: later it could wait for a
 * kernel that waits.
 */
static int warm_up(struct nccl *nccl)
{
    size_t ranks = (size_t)nccl->comm->size;
    struct epx_exchange *exchange =
        calloc(1, sizeof(*exchange) + ranks * sizeof(*exchange->message));
    size_t bytes = (2 * ranks + 1) * STAMP_BYTES;
    int rc = EPX_ERR_NO_MEM;
    char *memory = NULL;

    if (exchange && cudaMallocAsync((void **)&memory, bytes, nccl->stream) == cudaSuccess) {
        exchange->send = memory;
        exchange->recv = exchange->arrived = memory + STAMP_BYTES;
        exchange->stamp = memory;
        exchange->message[nccl->comm->rank].send_bytes = STAMP_BYTES;
        rc = nccl_exchange(nccl, exchange, nccl->stream);
        cudaFreeAsync(memory, nccl->stream);
    }
    free(exchange);
    EPX_FAIL_IF(rc == EPX_ERR_NO_MEM, rc, "no memory for a first exchange");
    EPX_TRY(rc);
    EPX_TRY_CUDA(cudaStreamSynchronize(nccl->stream));
    return EPX_SUCCESS;
}

static int init(struct nccl *nccl)
{
    EPX_TRY_CUDA(cudaStreamCreateWithFlags(&nccl->stream, cudaStreamNonBlocking));
    return EPX_SUCCESS;
}

static int init_all(struct nccl *nccl)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    EPX_TRY(epx_comm_agree(nccl->comm, init(nccl)));
    EPX_TRY(epx_nccl_connect(nccl->comm, &config, &nccl->nccl));
    return epx_comm_agree(nccl->comm, warm_up(nccl));
}

static int nccl_create(struct epx_comm *comm, void **state)
{
    struct nccl *nccl = calloc(1, sizeof(*nccl));
    struct epx_device_scope scope;
    cudaError_t error;
    int rc;

    *state = nccl;
    if (!nccl)
        return epx_comm_agree(comm, epx_fail(EPX_ERR_NO_MEM, "no memory for transport nccl"));
    nccl->comm = comm;
    error = cudaGetDevice(&nccl->ordinal);
    if (error == cudaSuccess)
        error = epx_device_enter(nccl->ordinal, &scope);
    if (error != cudaSuccess)
        return epx_comm_agree(comm, epx_fail_cuda(error, "cudaGetDevice"));
    rc = init_all(nccl);
    epx_device_leave(&scope);
    return rc;
}

const struct epx_transport_ops epx_transport_nccl = {
    .memory = EPX_MEMORY_CUDA,
    .usable = nccl_usable,
    .create = nccl_create,
    .free = nccl_free,
    .window_create = nccl_window_create,
    .window_free = nccl_window_free,
    .reclaim = nccl_reclaim,
    .exchange = nccl_exchange,
    .abort = nccl_abort,
};
