/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_nccl.c - messages between device memories by ncclSend and ncclRecv, on a NCCL
 * communicator of this transport's own that only the proxy's thread uses once it is made. After its
 * bytes, if it gets any, every rank that takes part gets the number of the exchange (the stamp), so
 * that a rank whose stamp is missing can be told from the others.
 */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/agree.h"
#include "kernels/ring.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_ranks.h"
#include "transport/cuda/device_scope.h"
#include "transport/cuda/device_windows.h"
#include "transport/nccl/nccl_ranks.h"
#include "transport/transport.h"

enum { STAMP_BYTES = 8 };

struct nccl {
    struct epx_device_windows windows; /* first */
    struct epx_comm *comm;
    ncclComm_t nccl; /* NULL on one rank */
};

static int nccl_usable(struct epx_comm *comm, char *why)
{
    int64_t *devices = epx_nccl_devices(comm, why);
    int usable = devices && epx_device_check_queues(why);

    free(devices);
    return usable;
}

static int exchange_with(const struct nccl *nccl, const struct epx_exchange *exchange, int rank,
                         cudaStream_t stream)
{
    const struct epx_message *message = &exchange->message[rank];

    if (!epx_message_takes_part(message))
        return EPX_SUCCESS;
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

static int nccl_exchange(void *state, const struct epx_exchange *exchange, void *stream)
{
    const struct nccl *nccl = state;
    int rank = nccl->comm->rank, size = nccl->comm->size, rc = EPX_SUCCESS;

    if (!nccl->nccl)
        return EPX_SUCCESS;
    EPX_TRY_NCCL(ncclGroupStart());
    for (int i = 1; i < size && rc == EPX_SUCCESS; i++)
        rc = exchange_with(nccl, exchange, (rank + i) % size, stream);
    EPX_TRY_NCCL(ncclGroupEnd());
    return rc;
}

static void nccl_abort(void *state)
{
    struct nccl *nccl = state;

    if (nccl->nccl)
        ncclCommAbort(nccl->nccl);
    nccl->nccl = NULL;
}

static void nccl_free(void *state)
{
    struct nccl *nccl = state;
    struct epx_device_scope scope;

    if (epx_device_enter(nccl->windows.ordinal, &scope) == cudaSuccess) {
        if (nccl->nccl)
            ncclCommDestroy(nccl->nccl);
        epx_device_windows_close(&nccl->windows);
        epx_device_leave(&scope);
    }
}

/*
 * Makes NCCL load and connect now what it otherwise would at first use: later that could wait for a
 * kernel that waits. Every rank sends all others a message of eight bytes.
 */
static int warm_up(struct nccl *nccl)
{
    cudaStream_t stream = nccl->windows.stream;
    size_t ranks = (size_t)nccl->comm->size, bytes = (1 + 2 * ranks) * STAMP_BYTES;
    struct epx_exchange *exchange =
        calloc(1, sizeof(*exchange) + ranks * sizeof(*exchange->message));
    int rc = EPX_ERR_NO_MEM;
    char *memory = NULL;

    if (exchange && cudaMallocAsync((void **)&memory, bytes, stream) == cudaSuccess) {
        exchange->send = exchange->stamp = memory;
        exchange->arrived = memory + STAMP_BYTES;
        exchange->recv = exchange->arrived + ranks * STAMP_BYTES;
        for (size_t r = 0; r < ranks; r++)
            exchange->message[r] =
                (struct epx_message){0, STAMP_BYTES, (int64_t)r * STAMP_BYTES, STAMP_BYTES};
        rc = nccl_exchange(nccl, exchange, stream);
        cudaFreeAsync(memory, stream);
    }
    free(exchange);
    EPX_FAIL_IF(rc == EPX_ERR_NO_MEM, rc, "no memory for a first exchange");
    EPX_TRY(rc);
    EPX_TRY_CUDA(cudaStreamSynchronize(stream));
    return EPX_SUCCESS;
}

static int init_all(void *state)
{
    struct nccl *nccl = state;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int rc = epx_device_windows_open(&nccl->windows, nccl->comm);

    EPX_TRY(epx_comm_agree(nccl->comm, rc));
    EPX_TRY(epx_nccl_connect(nccl->comm, &config, &nccl->nccl));
    return epx_comm_agree(nccl->comm, warm_up(nccl));
}

static int nccl_create(struct epx_transport *transport)
{
    struct nccl *nccl = transport->state;

    nccl->comm = transport->comm;
    return epx_device_run(nccl->comm, &nccl->windows.ordinal, init_all, nccl);
}

static const struct epx_exchange_ops nccl_exchanges = {
    .start = nccl_exchange,
    .abort = nccl_abort,
};

const struct epx_transport_ops epx_transport_nccl = {
    .memory = EPX_MEMORY_CUDA,
    .usable = nccl_usable,
    .state_bytes = sizeof(struct nccl),
    .create = nccl_create,
    .free = nccl_free,
    .window_create = epx_device_windows_create,
    .window_free = epx_device_windows_free,
    .window_fence = epx_device_windows_fence,
    .reclaim = epx_device_windows_reclaim,
    .exchanges = &nccl_exchanges,
};
