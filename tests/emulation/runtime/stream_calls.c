/* SPDX-License-Identifier: BSD-3-Clause */
/* stream_calls.c - calls of CUDA's runtime about streams, events, captures and graphs. */
#include <stdlib.h>

#include "emulation/runtime/driver.h"
#include "emulation/runtime/errors.h"
#include "emulation/streams/graphs.h"
#include "emulation/streams/works.h"

/* What CUDA's types of graphs stand for. */
static struct graph *graph_of(const void *handle)
{
    return (struct graph *)(uintptr_t)handle;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    driver_has_context();
    streams_lock();
    *stream = streams_create(streams_device(), !(flags & cudaStreamNonBlocking));
    streams_unlock();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    streams_lock();
    streams_destroy(stream);
    streams_unlock();
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t error;

    stream = streams_of(stream);
    streams_lock();
    error = graph_refuse(stream);
    if (error == cudaSuccess)
        streams_drain(stream);
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    cudaError_t error;

    stream = streams_of(stream);
    streams_lock();
    error = graph_refuse(stream);
    if (error == cudaSuccess && stream->first)
        error = cudaErrorNotReady;
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    *id = streams_of(stream)->id;
    return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device)
{
    *device = streams_of(stream)->device;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    driver_has_context();
    *event = works_memory(sizeof(**event));
    (*event)->references = 1;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    streams_lock();
    works_forget_event(event);
    streams_unlock();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t error;

    stream = streams_of(stream);
    streams_lock();
    error = graph_record(event, stream);
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    cudaError_t error;

    (void)flags;
    stream = streams_of(stream);
    streams_lock();
    error = graph_wait(stream, event);
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error;

    streams_lock();
    error = event->capture ? cudaErrorCapturedEvent : graph_refuse_all();
    if (error == cudaSuccess && event->come != event->recorded)
        error = cudaErrorNotReady;
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error;

    streams_lock();
    error = event->capture ? cudaErrorCapturedEvent : graph_refuse_all();
    while (error == cudaSuccess && event->come != event->recorded)
        streams_wait();
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    streams_lock();
    *ms = (float)(end->come_ns - start->come_ns) / 1e6f;
    streams_unlock();
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaError_t error;

    if (!stream || stream == cudaStreamLegacy)
        return errors_note(cudaErrorStreamCaptureUnsupported);
    stream = streams_of(stream);
    streams_lock();
    error = graph_begin(stream, mode);
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    struct graph *made = NULL;
    cudaError_t error;

    stream = streams_of(stream);
    streams_lock();
    error = graph_end(stream, &made);
    streams_unlock();
    *graph = (cudaGraph_t)(void *)made;
    return errors_note(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    unsigned long long id;

    stream = streams_of(stream);
    streams_lock();
    *status = graph_status(stream, &id);
    streams_unlock();
    return cudaSuccess;
}

static cudaError_t tell_capture(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                unsigned long long *id)
{
    unsigned long long found;

    stream = streams_of(stream);
    streams_lock();
    *status = graph_status(stream, &found);
    streams_unlock();
    if (id)
        *id = found;
    return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *num)
{
    if (graph || dependencies || edges || num)
        return errors_note(cudaErrorNotSupported);
    return tell_capture(stream, status, id);
}
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id)
{
    return tell_capture(stream, status, id);
}
#endif

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    graph_exchange_mode(mode);
    return cudaSuccess;
}

static cudaError_t forget(void *handle)
{
    streams_lock();
    graph_forget(graph_of(handle));
    streams_unlock();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return forget(graph);
}

/* A node's handle is what it does. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *num)
{
    streams_lock();
    for (size_t i = 0; nodes && i < *num; i++)
        nodes[i] = (cudaGraphNode_t)(uintptr_t)graph_node(graph_of(graph), (int)i);
    if (!nodes)
        *num = (size_t)graph_num_nodes(graph_of(graph));
    streams_unlock();
    return cudaSuccess;
}

/* Tells kernels from all else. */
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    *type = works_is_kernel((const struct work *)(const void *)node) ? cudaGraphNodeTypeKernel
                                                                     : cudaGraphNodeTypeEmpty;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    return forget(graph);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long flags)
{
    (void)flags;
    streams_lock();
    *executable = (cudaGraphExec_t)(void *)graph_keep(graph_of(graph));
    streams_unlock();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    cudaError_t error;

    stream = streams_of(stream);
    streams_lock();
    error = graph_queue(stream, graph_work(graph_of(graph)));
    streams_unlock();
    return errors_note(error);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    cudaError_t error;

    stream = streams_of(stream);
    streams_lock();
    error = graph_queue(stream, works_call(function, argument));
    streams_unlock();
    return errors_note(error);
}
