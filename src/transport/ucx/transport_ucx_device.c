/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_ucx_device.c - messages between device memories by UCX itself, where UCX takes CUDA
 * memory: UCX is given the addresses that kernels posted. This transport has a context and a worker
 * of its own, made here and then used by the proxy's thread alone. ucx_exchange.c has the exchange.
 */
#include "transport/ucx/transport_ucx_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/agree.h"
#include "kernels/ring.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_ranks.h"
#include "transport/cuda/device_scope.h"
#include "transport/ucx/ucx_context.h"

enum { PARTING_MS = 1000, SHORT_BYTES = 8, LONG_BYTES = 1 << 20 };
#define FIRST_NUMBER (1ULL << 40) /* the first number of exchanges that no kernel posts */

/* Local: whether UCX takes CUDA memory here; if not, why. */
static int takes_device_memory(const struct epx_comm *comm, char *why)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    ucp_context_h context;
    ucs_status_t status = epx_ucx_context(comm, UCP_FEATURE_TAG, NULL, &context);

    if (status == UCS_OK) {
        status = ucp_context_query(context, &attr);
        ucp_cleanup(context);
    }
    if (status != UCS_OK)
        snprintf(why, EPX_WHY_MAX, "UCX: %s", ucs_status_string(status));
    else if (!(attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)))
        snprintf(why, EPX_WHY_MAX, "UCX takes no device memory on rank %d (UCX_TLS)", comm->rank);
    else
        return 1;
    return 0;
}

/* Within a node UCX is fast only by cuda_ipc, which EPX leaves out unless the user sets UCX_TLS. */
static int is_wanted(const struct epx_comm *comm, char *why)
{
    if (getenv("UCX_TLS") || (comm->size > 1 && comm->real_nodes == comm->size))
        return 1;
    snprintf(why, EPX_WHY_MAX, "ranks share a node, and UCX_TLS names no transport for them");
    return 0;
}

static int ucx_device_usable(struct epx_comm *comm, char *why)
{
    int64_t *devices = epx_device_numbers(comm, why);
    int usable = EPX_UNUSABLE;

    if (devices && epx_device_check_room(comm, devices, why) && epx_device_check_queues(why) &&
        is_wanted(comm, why))
        usable = epx_ucx_usable(comm, why);
    if (usable == EPX_USABLE && !takes_device_memory(comm, why))
        usable = EPX_UNUSABLE;
    free(devices);
    return usable;
}

static int expect_answers(const struct epx_ucx_device *ucx, int over)
{
    for (int r = 0; !over && r < ucx->comm->size; r++)
        EPX_FAIL_IF(ucx->peer[r].sending || ucx->peer[r].receiving, EPX_ERR_TIMEOUT,
                    "rank %d does not answer messages of UCX", r);
    EPX_FAIL_IF(!over, EPX_ERR_TIMEOUT, "UCX does not send its messages");
    return EPX_SUCCESS;
}

/* The first exchange connects the ranks; when the second is over, all ranks have ended the
 * first. */
static int warm_up(struct epx_ucx_device *ucx, char *memory)
{
    static const int64_t bytes[] = {SHORT_BYTES, LONG_BYTES};
    int over;

    for (int i = 0; i < 2; i++) {
        EPX_TRY(epx_ucx_exchange_own(ucx, memory, bytes[i], ucx->comm->params.timeout_ms, &over));
        EPX_TRY(expect_answers(ucx, over));
    }
    return EPX_SUCCESS;
}

/* Makes a last exchange before connections are closed: a peer that is still in the exchange before
 * it would take a closed connection for an error. */
static void part(struct epx_ucx_device *ucx)
{
    int over;

    if (!ucx->connected || ucx->exchange)
        return;
    ucx->parting = 1;
    epx_ucx_exchange_own(ucx, NULL, 0, PARTING_MS, &over);
}

static void close_ucx(struct epx_ucx_device *ucx)
{
    part(ucx);
    for (int r = 0; ucx->peer && r < ucx->comm->size; r++)
        if (ucx->peer[r].endpoint && epx_ucx_reports(ucx->comm, r))
            epx_ucx_close(ucx->worker, ucx->peer[r].endpoint); /* the others end with the worker */
    if (ucx->worker)
        ucp_worker_destroy(ucx->worker);
    if (ucx->context)
        ucp_cleanup(ucx->context);
}

static void ucx_device_free(void *state)
{
    struct epx_ucx_device *ucx = state;
    struct epx_device_scope scope;

    if (epx_device_enter(ucx->windows.ordinal, &scope) == cudaSuccess) {
        close_ucx(ucx);
        cudaFreeHost(ucx->answered);
        epx_device_windows_close(&ucx->windows);
        epx_device_leave(&scope);
    }
    free(ucx->own);
    free(ucx->peer);
    free(ucx->addresses);
}

static void peer_failed(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    struct epx_ucx_peer *peer = argument;

    (void)endpoint;
    if (!peer->ucx->parting)
        peer->lost = status;
}

static int connect_to(struct epx_ucx_device *ucx, int rank, const ucp_address_t *address)
{
    struct epx_ucx_peer *peer = &ucx->peer[rank];
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = epx_ucx_reports(ucx->comm, rank) ? UCP_ERR_HANDLING_MODE_PEER
                                                     : UCP_ERR_HANDLING_MODE_NONE,
        .err_handler = {.cb = peer_failed, .arg = peer},
    };

    EPX_TRY_UCX(ucp_ep_create(ucx->worker, &params, &peer->endpoint));
    return EPX_SUCCESS;
}

static int connect_all(struct epx_ucx_device *ucx)
{
    size_t stride;
    int rc = EPX_SUCCESS;

    EPX_TRY(epx_ucx_addresses(ucx->comm, ucx->worker, &stride, &ucx->addresses));
    for (int r = 0; rc == EPX_SUCCESS && r < ucx->comm->size; r++)
        if (r != ucx->comm->rank)
            rc = connect_to(ucx, r, (void *)(ucx->addresses + (size_t)r * stride));
    EPX_TRY(epx_comm_agree(ucx->comm, rc));
    ucx->connected = 1;
    return EPX_SUCCESS;
}

static int allocate(struct epx_ucx_device *ucx)
{
    size_t ranks = (size_t)ucx->comm->size;

    ucx->peer = calloc(ranks, sizeof(*ucx->peer));
    ucx->own = calloc(1, sizeof(*ucx->own) + ranks * sizeof(*ucx->own->message));
    EPX_FAIL_IF(!ucx->peer || !ucx->own, EPX_ERR_NO_MEM, "no memory for %zu ranks", ranks);
    for (size_t r = 0; r < ranks; r++)
        ucx->peer[r].ucx = ucx;
    EPX_TRY_CUDA(cudaHostAlloc((void **)&ucx->answered, ranks * sizeof(*ucx->answered),
                               cudaHostAllocPortable));
    memset(ucx->answered, 0, ranks * sizeof(*ucx->answered));
    return EPX_SUCCESS;
}

/* Finds out whether the host must flush what a network adapter stored before kernels that already
 * run are sure to see it. */
static int find_order_of_writes(struct epx_ucx_device *ucx)
{
    int ordering, options, ordinal = ucx->windows.ordinal;

    EPX_TRY_CUDA(
        cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, ordinal));
    EPX_TRY_CUDA(
        cudaDeviceGetAttribute(&options, cudaDevAttrGPUDirectRDMAFlushWritesOptions, ordinal));
    ucx->flushes_writes = ordering < cudaGPUDirectRDMAWritesOrderingOwner &&
                          (options & cudaFlushGPUDirectRDMAWritesOptionHost);
    return EPX_SUCCESS;
}

static int init(struct epx_ucx_device *ucx)
{
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK, /* aborted requests leak */
    };
    ucs_status_t status;

    ucx->number = FIRST_NUMBER;
    ucx->windows.keeps = 1;
    EPX_TRY(allocate(ucx));
    EPX_TRY(find_order_of_writes(ucx));
    EPX_TRY(epx_device_windows_open(&ucx->windows, ucx->comm));
    status =
        epx_ucx_context(ucx->comm, UCP_FEATURE_TAG,
                        ucx->memory == UCS_MEMORY_TYPE_CUDA ? "^cuda_ipc" : NULL, &ucx->context);
    EPX_TRY(epx_ucx_made(status, "ucp_init"));
    return epx_ucx_made(ucp_worker_create(ucx->context, &params, &ucx->worker),
                        "ucp_worker_create");
}

static int init_all(void *state)
{
    struct epx_ucx_device *ucx = state;
    struct epx_window *window;
    int rc;

    EPX_TRY(epx_comm_agree(ucx->comm, init(ucx)));
    EPX_TRY(connect_all(ucx));
    EPX_TRY(epx_device_windows_create(&ucx->windows, 2 * LONG_BYTES, &window));
    rc = epx_comm_agree(ucx->comm, warm_up(ucx, window->own));
    epx_device_windows_free(&ucx->windows, window);
    return rc;
}

int epx_ucx_device_create(struct epx_transport *transport, ucs_memory_type_t memory)
{
    struct epx_ucx_device *ucx = transport->state;

    ucx->comm = transport->comm;
    ucx->memory = memory;
    return epx_device_run(ucx->comm, &ucx->windows.ordinal, init_all, ucx);
}

/* UCX may have mapped the memory into another process, by cuda_ipc, or have messages that it cannot
 * cancel. */
static int ucx_device_window_fence(void *state, struct epx_window *window)
{
    (void)state;
    (void)window;
    return epx_fail_quietly(EPX_ERR_UNSUPPORTED,
                            "UCX may still use the device memory of transport ucx; with a "
                            "UCX_TLS that has nothing for CUDA it would not");
}

static int ucx_device_create(struct epx_transport *transport)
{
    return epx_ucx_device_create(transport, UCS_MEMORY_TYPE_CUDA);
}

static const struct epx_exchange_ops ucx_exchanges = {
    .start = epx_ucx_exchange,
    .queued = epx_ucx_queued,
    .abort = epx_ucx_abort,
};

const struct epx_transport_ops epx_transport_ucx_device = {
    .memory = EPX_MEMORY_CUDA,
    .usable = ucx_device_usable,
    .state_bytes = sizeof(struct epx_ucx_device),
    .create = ucx_device_create,
    .free = ucx_device_free,
    .window_create = epx_device_windows_create,
    .window_free = epx_device_windows_free,
    .window_fence = ucx_device_window_fence,
    .reclaim = epx_device_windows_reclaim,
    .exchanges = &ucx_exchanges,
};
