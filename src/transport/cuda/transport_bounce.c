/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_bounce.c - messages between device memories through pinned stages on the hosts, and a
 * transport of host memory that the proxy's thread moves. The sender's GPU copies a piece of each
 * message into the receiver's stage or, where that is not mapped here, into its own; the host
 * transport tells the receiver, or takes the piece there; the receiver's GPU copies it in. Kernels
 * that wait make the copies. This file makes the stages; bounce_rounds.c has the exchange.
 */
#include <stdlib.h>
#include <string.h>

#include "core/agree.h"
#include "transport/cuda/bounce_rounds.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_ranks.h"
#include "transport/cuda/device_scope.h"

static int bounce_usable(struct epx_comm *comm, char *why)
{
    const struct epx_transport_ops *host = epx_transport_host_messages();
    int64_t *devices = epx_device_numbers(comm, why);
    int usable = EPX_UNUSABLE;

    if (devices && epx_device_check_room(comm, devices, why))
        usable = host->usable(comm, why);
    free(devices);
    return usable;
}

static size_t stages_bytes(const struct epx_bounce *bounce)
{
    size_t stage = (size_t)(bounce->stage[1] - bounce->stage[0]);

    return stage + (size_t)(bounce->comm->size * bounce->pieces.share_bytes);
}

static void free_cuda(struct epx_bounce *bounce)
{
    for (int r = 0; bounce->registered && r < bounce->comm->size; r++)
        if (bounce->registered[r])
            cudaHostUnregister(bounce->registered[r]);
    epx_copies_close(&bounce->copies);
    cudaFreeHost(bounce->steps);
    epx_device_windows_close(&bounce->windows);
}

static void bounce_free(void *state)
{
    struct epx_bounce *bounce = state;
    struct epx_device_scope scope;

    if (epx_device_enter(bounce->windows.ordinal, &scope) == cudaSuccess) {
        free_cuda(bounce);
        epx_device_leave(&scope);
    }
    if (bounce->host.state)
        bounce->host.ops->free(bounce->host.state);
    free(bounce->host.state);
    free(bounce->registered);
    free(bounce->filling.place);
    free(bounce->filling.copied);
    free(bounce->came);
    free(bounce->counts);
    free(bounce->displs);
}

static int allocate(struct epx_bounce *bounce)
{
    size_t ranks = (size_t)bounce->comm->size;

    bounce->registered = calloc(ranks, sizeof(*bounce->registered));
    bounce->filling.place = calloc(ranks, sizeof(*bounce->filling.place));
    bounce->filling.copied = calloc(ranks, sizeof(*bounce->filling.copied));
    bounce->came = calloc(ranks, sizeof(*bounce->came));
    bounce->counts = calloc(2 * ranks, sizeof(*bounce->counts));
    bounce->displs = calloc(ranks, sizeof(*bounce->displs));
    bounce->host.state = epx_memory_zeroed(1, bounce->host.ops->state_bytes);
    EPX_FAIL_IF(!bounce->registered || !bounce->filling.place || !bounce->filling.copied ||
                    !bounce->came || !bounce->counts || !bounce->displs || !bounce->host.state,
                EPX_ERR_NO_MEM, "no memory for %zu ranks", ranks);
    for (size_t r = 0; r < ranks; r++)
        bounce->displs[r] = (int)((int64_t)r * bounce->pieces.share_bytes);
    return EPX_SUCCESS;
}

static int init(struct epx_bounce *bounce)
{
    size_t bytes = 2 * (size_t)bounce->comm->size * sizeof(*bounce->steps);

    bounce->pieces = epx_pieces_of(bounce->comm->params.window_bytes, bounce->comm->size);
    EPX_TRY(allocate(bounce));
    EPX_TRY(epx_device_windows_open(&bounce->windows, bounce->comm));
    EPX_TRY(epx_copies_open(&bounce->copies));
    EPX_TRY_CUDA(cudaHostAlloc((void **)&bounce->steps, bytes, cudaHostAllocPortable));
    memset(bounce->steps, 0, bytes);
    return EPX_SUCCESS;
}

/* Kernels use the addresses that the host uses. */
static int expect_same_address(char *stages)
{
    void *address = NULL;

    EPX_TRY_CUDA(cudaHostGetDevicePointer(&address, stages, 0));
    EPX_FAIL_IF(address != stages, EPX_ERR_TRANSPORT,
                "the GPU has other addresses for the host's memory than the host");
    return EPX_SUCCESS;
}

/* Registers stages with CUDA, which the host transport itself may have done already. */
static int pin(struct epx_bounce *bounce, int rank, char *stages)
{
    cudaError_t error = cudaHostRegister(stages, stages_bytes(bounce),
                                         cudaHostRegisterPortable | cudaHostRegisterMapped);

    if (error == cudaErrorHostMemoryAlreadyRegistered) {
        cudaGetLastError();
        return expect_same_address(stages);
    }
    EPX_TRY_CUDA(error);
    bounce->registered[rank] = stages;
    return expect_same_address(stages);
}

static int pin_all(struct epx_bounce *bounce)
{
    int self = bounce->comm->rank;

    bounce->is_mapped = 1;
    EPX_TRY(pin(bounce, self, bounce->stage[0]));
    for (int r = 0; r < bounce->comm->size; r++) {
        char *stages =
            r == self ? bounce->stage[0]
                      : bounce->host.ops->messages->mapped(bounce->host.state, r, bounce->stage[0]);

        bounce->is_mapped &= stages != NULL;
        if (stages && r != self)
            EPX_TRY(pin(bounce, r, stages));
    }
    return EPX_SUCCESS;
}

static int init_all(void *state)
{
    struct epx_bounce *bounce = state;
    struct epx_comm *comm = bounce->comm;
    size_t bytes;

    EPX_TRY(epx_comm_agree(comm, init(bounce)));
    EPX_TRY(bounce->host.ops->create(&bounce->host));
    bytes = (size_t)(comm->size * bounce->pieces.share_bytes);
    EPX_TRY(bounce->host.ops->messages->stages(bounce->host.state, bytes, &bounce->stage[0],
                                               &bounce->stage[1]));
    return epx_comm_agree(comm, pin_all(bounce));
}

static int bounce_create(struct epx_transport *transport)
{
    struct epx_bounce *bounce = transport->state;

    bounce->comm = transport->comm;
    bounce->host.comm = transport->comm;
    bounce->host.ops = epx_transport_host_messages();
    return epx_device_run(bounce->comm, &bounce->windows.ordinal, init_all, bounce);
}

static struct epx_copies *bounce_copies(void *state)
{
    return &((struct epx_bounce *)state)->copies;
}

/* No copy waits for a rank: there is nothing to abort. */
static const struct epx_exchange_ops bounce_exchanges = {
    .copies = bounce_copies,
    .start = epx_bounce_exchange,
    .queued = epx_bounce_queued,
};

const struct epx_transport_ops epx_transport_bounce = {
    .memory = EPX_MEMORY_CUDA,
    .usable = bounce_usable,
    .state_bytes = sizeof(struct epx_bounce),
    .create = bounce_create,
    .free = bounce_free,
    .window_create = epx_device_windows_create,
    .window_free = epx_device_windows_free,
    .window_fence = epx_device_windows_fence,
    .reclaim = epx_device_windows_reclaim,
    .exchanges = &bounce_exchanges,
};
