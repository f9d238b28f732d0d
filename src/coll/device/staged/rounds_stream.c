/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rounds_stream.c - where the rounds of an operation by messages are queued: on the user's stream,
 * but for CUDA's legacy default stream. A round is three launches, or five with relays; a long
 * table through a small stage has hundreds of rounds. A thousand launches ahead of the GPU on that
 * stream stop the proxy (proxy.c). So rounds go to a stream of the communicator, which begins
 * behind what is on the default stream and ends before what comes there.
 */
#include "coll/device/staged/rounds_stream.h"
#include "coll/device/device.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"

int epx_rounds_create(struct epx_device *device)
{
    EPX_TRY_CUDA(epx_device_new_stream(&device->rounds));
    EPX_TRY_CUDA(cudaEventCreateWithFlags(&device->rounds_edge, cudaEventDisableTiming));
    return EPX_SUCCESS;
}

void epx_rounds_free(struct epx_device *device)
{
    if (device->rounds_edge)
        cudaEventDestroy(device->rounds_edge);
    if (device->rounds)
        cudaStreamDestroy(device->rounds);
}

/* Makes a stream wait for what another one has so far. */
static int queue_behind(cudaEvent_t edge, cudaStream_t before, cudaStream_t behind)
{
    EPX_TRY_CUDA(cudaEventRecord(edge, before));
    EPX_TRY_CUDA(cudaStreamWaitEvent(behind, edge, 0));
    return EPX_SUCCESS;
}

int epx_rounds_begin(const struct epx_request *request, int64_t num, EPX_Stream *stream)
{
    const struct epx_device *device = epx_device_of(request);
    const cudaStream_t user = request->call.stream;

    *stream = user;
    if (num == 1 || (user && user != cudaStreamLegacy))
        return EPX_SUCCESS;
    *stream = device->rounds;
    return queue_behind(device->rounds_edge, user, *stream);
}

int epx_rounds_end(const struct epx_request *request, EPX_Stream stream)
{
    if (stream == request->call.stream)
        return EPX_SUCCESS;
    return queue_behind(epx_device_of(request)->rounds_edge, stream, request->call.stream);
}
