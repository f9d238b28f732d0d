/* SPDX-License-Identifier: BSD-3-Clause */
/* device_create.c - makes and frees what a communicator on device memory has. */
#include "coll/device/device_create.h"
#include "base/jitter.h"
#include "base/log.h"
#include "coll/device/control_window.h"
#include "coll/device/device_liveness.h"
#include "coll/device/device_order.h"
#include "coll/device/direct/kept_counts.h"
#include "coll/device/staged/proxy.h"
#include "coll/device/staged/rounds_stream.h"
#include "coll/device/user_memory.h"
#include "core/agree.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_ranks.h"
#include "transport/cuda/device_scope.h"
#include "transport/cuda/multiprocessors.h"
#include "core/letter_liveness.h"
#include "kernels/args/block_shape.h"
#include "kernels/args/load.h"
#include "kernels/device_plan.h"

#include <stdlib.h>
#include <string.h>

static int allocate_completions(struct epx_device *device)
{
    size_t bytes = EPX_MOST_IN_FLIGHT * sizeof(*device->completions);

    device->events = calloc(EPX_MOST_IN_FLIGHT, sizeof(*device->events));
    device->unused = calloc(EPX_MOST_IN_FLIGHT, sizeof(*device->unused));
    EPX_FAIL_IF(!device->events || !device->unused, EPX_ERR_NO_MEM, "no memory for %d completions",
                EPX_MOST_IN_FLIGHT);
    EPX_TRY_CUDA(cudaHostAlloc((void **)&device->completions, bytes, cudaHostAllocPortable));
    EPX_TRY_CUDA(
        cudaHostAlloc((void **)&device->notes, sizeof(*device->notes), cudaHostAllocPortable));
    memset(device->completions, 0, bytes);
    memset(device->notes, 0, sizeof(*device->notes));
    epx_waits_tell(&device->comm->waits, device->notes->waits.ns, device->notes->waits.operations);
    for (int i = EPX_SHARED_COMPLETION - 1; i >= 0; i--)
        device->unused[device->num_unused++] = i;
    return EPX_SUCCESS;
}

static int create_streams(struct epx_device *device)
{
    EPX_TRY_CUDA(epx_device_new_stream(&device->stream));
    EPX_TRY_CUDA(cudaEventCreateWithFlags(&device->copied, cudaEventDisableTiming));
    if (device->transport->ops->exchanges)
        EPX_TRY(epx_rounds_create(device));
    return epx_device_init_order(device);
}

static int init(struct epx_device *device)
{
    EPX_TRY(allocate_completions(device));
    EPX_TRY(create_streams(device));
    EPX_TRY(epx_user_memory_init(device));
    EPX_TRY_LAUNCH(epx_load_kernels());
    return EPX_SUCCESS;
}

/* How many halves of blocks a routing may have, 0 = none. A communicator that is bounded has as
 * many as multiprocessors, if no fewer than pay. Another one has two for each block, which run on
 * twice as many multiprocessors, where a GPU is its own and so large that those of two
 * communicators leave room for each other. With --enable-jitter it has them on any. */
static int find_halves(struct epx_device *device, int sharers)
{
    enum { WANTED = EPX_ROUTE_HALVES * EPX_WAITING_SMS };
    struct epx_gpu *gpu = &device->gpu;
    const int doubled = EPX_ROUTE_HALVES * gpu->blocks;
    int64_t lacks_room = !EPX_JITTERS && (sharers > 1 || gpu->sms < 2 * doubled);

    EPX_TRY(epx_comm_max(device->comm, lacks_room, &lacks_room));
    if (gpu->max_sms)
        gpu->halves = gpu->blocks >= WANTED ? gpu->blocks : 0;
    else
        gpu->halves = lacks_room ? 0 : doubled;
    return EPX_SUCCESS;
}

/* Finds how many blocks kernels may have. Those of a kernel in which all wait must run at once on
 * every rank's GPU, or on the part of it that is in its context. Of a kernel that moves rows the
 * blocks that send wait for nobody until they have sent, but for weights (few_sums.cuh). Ranks that
 * share a GPU share its multiprocessors. */
static int find_blocks(struct epx_device *device)
{
    const struct epx_params *params = &device->comm->params;
    struct epx_gpu *gpu = &device->gpu;
    int64_t wanted = epx_waiting_sms(params), most;
    int sms = 0, sharers = 1, rc = EPX_SUCCESS;
    cudaError_t error = epx_count_sms(device->ordinal, &sms);

    if (error != cudaSuccess)
        rc = epx_fail_cuda(error, "cudaDeviceGetAttribute");
    EPX_TRY(epx_comm_agree(device->comm, rc));
    EPX_TRY(epx_device_count_sharers(device->comm, &sharers));
    EPX_TRY(epx_comm_max(device->comm, -(wanted < sms ? wanted : sms), &most));
    gpu->sms = sms;
    gpu->max_sms = (int32_t)params->max_sms;
    epx_gpu_share(gpu, sharers, -most);
    EPX_TRY(find_halves(device, sharers));
    EPX_TRY(epx_comm_max(device->comm, -gpu->senders, &most));
    gpu->senders = (int32_t)-most;
    return EPX_SUCCESS;
}

/* Waits for the stream first: a copy of the abort word, from the window to notes, may be under
 * way. */
static void free_cuda(struct epx_device *device)
{
    if (device->stream)
        cudaStreamSynchronize(device->stream);
    for (int i = 0; device->events && i < EPX_MOST_IN_FLIGHT; i++)
        if (device->events[i])
            cudaEventDestroy(device->events[i]);
    epx_device_end_order(device);
    epx_device_free_counts(device);
    epx_rounds_free(device);
    if (device->copied)
        cudaEventDestroy(device->copied);
    if (device->stream)
        cudaStreamDestroy(device->stream);
    cudaFreeHost(device->completions);
    epx_waits_keep(&device->comm->waits);
    cudaFreeHost(device->notes);
}

static void tell_latency(struct epx_device *device)
{
    const struct epx_device_exchanges *all = &device->notes->exchanges;

    if (!epx_device_copy(device, &device->notes->exchanges, &device->state->exchanges,
                         sizeof(*all)) ||
        all->num == 0)
        return;
    EPX_LOG_INFO("%llu exchanges of messages arrived after kernels had asked: the fastest %.1f us, "
                 "in the mean %.1f us",
                 (unsigned long long)all->num, (double)all->least_ns / 1e3,
                 (double)all->waited_ns / 1e3 / (double)all->num);
}

/* If the GPU is lost, the memory stays, because the proxy may still use it. Of a communicator that
 * has ended kernels may begin after their requests were complete: they are waited for. */
void epx_device_free(struct epx_transport *transport)
{
    struct epx_device *device = transport->device;
    struct epx_device_scope scope;

    if (!device)
        return;
    if (device->proxy && !device->comm->finished)
        tell_latency(device);
    epx_letter_liveness_free(device->letters);
    device->letters = NULL;
    if (epx_device_enter(device->ordinal, &scope) != cudaSuccess) {
        epx_proxy_retire(device->proxy);
        return;
    }
    if (device->comm->finished)
        cudaDeviceSynchronize();
    epx_proxy_free(device->proxy);
    if (device->window)
        transport->ops->window_free(transport->state, device->window);
    free_cuda(device);
    epx_device_leave(&scope);
    free(device->events);
    free(device->unused);
    free(device);
    transport->device = NULL;
}

void epx_device_retire(struct epx_device *device)
{
    if (device)
        epx_proxy_retire(device->proxy);
}

static int init_all(void *state)
{
    struct epx_device *device = state;
    struct epx_comm *comm = device->comm;

    EPX_TRY(epx_comm_agree(comm, init(device)));
    EPX_TRY(find_blocks(device));
    EPX_TRY(epx_control_window_create(device));
    if (!device->transport->ops->exchanges)
        return EPX_SUCCESS;
    EPX_TRY(epx_comm_agree(comm, epx_letter_liveness_create(comm, &device->letters)));
    return epx_comm_agree(comm, epx_proxy_create(device, &device->proxy));
}

/* The ranks agree also if one of them has no memory for the struct or loses its device. */
int epx_device_create(struct epx_transport *transport)
{
    struct epx_device *device = calloc(1, sizeof(*device));

    transport->device = device;
    if (!device)
        return epx_comm_agree(transport->comm, epx_fail(EPX_ERR_NO_MEM, "no memory for a device"));
    device->comm = transport->comm;
    device->transport = transport;
    transport->liveness.ops = &epx_device_liveness;
    transport->liveness.state = device;
    return epx_device_run(transport->comm, &device->ordinal, init_all, device);
}
