/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_space_cuda.c - the memory of this rank's GPU. Everything is queued on one stream and
 * timed by events on it; a computation beside it has a stream of its own. Images are page-locked.
 */
#include <stdio.h>
#include <stdlib.h>

#include "epx_perf/space/perf_agree.h"
#include "epx_perf/space/perf_alloc.h"
#include "epx_perf/space/perf_ceiling.h"
#include "epx_perf/space/perf_gemm.h"
#include "epx_perf/space/perf_kernels.h"
#include "epx_perf/space/perf_must.h"
#include "epx_perf/space/perf_space.h"
#include "ranks/ranks.h"

static cudaStream_t stream, aside;
static cudaEvent_t started, stopped, computed;
static int num_sms;

/* The ranks of a node take its GPUs in turn; the first rank without one says so. */
static int take_device(void)
{
    int count = 0, local = ranks_on_machine();
    cudaError_t error = cudaGetDeviceCount(&count);
    const char *why = NULL;

    if (error == cudaSuccess && count > 0)
        error = cudaSetDevice(local % count);
    if (error != cudaSuccess)
        why = cudaGetErrorString(error);
    else if (count == 0)
        why = "none is visible";
    return perf_agree("CUDA device", why);
}

static int cuda_open(void)
{
    int device;

    if (take_device())
        return -1;
    perf_must(cudaGetDevice(&device), "cudaGetDevice");
    perf_must(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device),
              "cudaDeviceGetAttribute");
    perf_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    perf_must(cudaStreamCreateWithFlags(&aside, cudaStreamNonBlocking), "cudaStreamCreate");
    perf_must(cudaEventCreate(&started), "cudaEventCreate");
    perf_must(cudaEventCreate(&stopped), "cudaEventCreate");
    perf_must(cudaEventCreate(&computed), "cudaEventCreate");
    return 0;
}

static void cuda_close(void)
{
    perf_gemm_close();
    perf_must(cudaEventDestroy(computed), "cudaEventDestroy");
    perf_must(cudaEventDestroy(stopped), "cudaEventDestroy");
    perf_must(cudaEventDestroy(started), "cudaEventDestroy");
    perf_must(cudaStreamDestroy(aside), "cudaStreamDestroy");
    perf_must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

static EPX_Stream cuda_stream(void)
{
    return stream;
}

static void synchronize(void)
{
    perf_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static void *cuda_alloc(int64_t bytes)
{
    void *memory = NULL;

    perf_must(cudaMalloc(&memory, bytes ? (size_t)bytes : 1), "cudaMalloc");
    return memory;
}

static void cuda_free(void *memory)
{
    perf_must(cudaFree(memory), "cudaFree");
}

static void *cuda_alloc_image(int64_t bytes)
{
    void *image = NULL;

    perf_must(cudaHostAlloc(&image, bytes ? (size_t)bytes : 1, cudaHostAllocDefault),
              "cudaHostAlloc");
    return image;
}

static void cuda_free_image(void *image)
{
    perf_must(cudaFreeHost(image), "cudaFreeHost");
}

static void cuda_fill(void *memory, int byte, int64_t bytes)
{
    perf_must(cudaMemsetAsync(memory, byte, (size_t)bytes, stream), "cudaMemsetAsync");
    synchronize();
}

static void cuda_put(void *memory, const void *image, int64_t bytes)
{
    perf_must(cudaMemcpyAsync(memory, image, (size_t)bytes, cudaMemcpyHostToDevice, stream),
              "cudaMemcpyAsync");
    synchronize();
}

static void cuda_get(void *image, const void *memory, int64_t bytes)
{
    perf_must(cudaMemcpyAsync(image, memory, (size_t)bytes, cudaMemcpyDeviceToHost, stream),
              "cudaMemcpyAsync");
    synchronize();
}

static void cuda_start_clock(void)
{
    perf_must(cudaEventRecord(started, stream), "cudaEventRecord");
}

static double cuda_stop_clock(void)
{
    float ms = 0;

    perf_must(cudaEventRecord(stopped, stream), "cudaEventRecord");
    synchronize();
    perf_must(cudaEventElapsedTime(&ms, started, stopped), "cudaEventElapsedTime");
    return ms * 1e-3;
}

static void cuda_copy(const struct perf_copy *copy)
{
    perf_launch_copy(copy, stream);
}

static int sms_but(int spare)
{
    return num_sms > spare ? num_sms - spare : 1;
}

/* What is queued aside starts with the clock, behind what is there already. */
static void begin_aside(void)
{
    perf_must(cudaStreamWaitEvent(aside, started, 0), "cudaStreamWaitEvent");
}

/* The stream goes on when what is queued aside has ended. */
static void end_aside(void)
{
    perf_must(cudaEventRecord(computed, aside), "cudaEventRecord");
    perf_must(cudaStreamWaitEvent(stream, computed, 0), "cudaStreamWaitEvent");
}

static void cuda_compute(int64_t units, int spare_sms)
{
    begin_aside();
    perf_launch_compute(units, sms_but(spare_sms), aside);
    end_aside();
}

static void cuda_gemm(int64_t num, int spare_sms)
{
    begin_aside();
    perf_gemm_queue(num, sms_but(spare_sms), aside);
    end_aside();
}

static double cuda_gemm_time(void)
{
    float ms = 0;

    perf_must(cudaEventElapsedTime(&ms, started, computed), "cudaEventElapsedTime");
    return ms * 1e-3;
}

static void cuda_start_capture(void)
{
    perf_must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
}

static int count_kernels(cudaGraph_t graph)
{
    size_t num = 0;
    cudaGraphNode_t *nodes;
    int kernels = 0;

    perf_must(cudaGraphGetNodes(graph, NULL, &num), "cudaGraphGetNodes");
    nodes = perf_alloc((int64_t)num, sizeof(*nodes));
    perf_must(cudaGraphGetNodes(graph, nodes, &num), "cudaGraphGetNodes");
    for (size_t i = 0; i < num; i++) {
        enum cudaGraphNodeType type;

        perf_must(cudaGraphNodeGetType(nodes[i], &type), "cudaGraphNodeGetType");
        kernels += type == cudaGraphNodeTypeKernel;
    }
    free(nodes);
    return kernels;
}

static void *cuda_end_capture(int *kernels)
{
    cudaGraphExec_t exec;
    cudaGraph_t graph;

    perf_must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    *kernels = count_kernels(graph);
    perf_must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    perf_must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return exec;
}

static void cuda_replay(void *graph)
{
    perf_must(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
}

static void cuda_free_graph(void *graph)
{
    perf_must(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
}

static void cuda_read_device(char *name, int length)
{
    struct cudaDeviceProp properties;
    int device;

    perf_must(cudaGetDevice(&device), "cudaGetDevice");
    perf_must(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    snprintf(name, (size_t)length, "%s", properties.name);
}

const struct perf_space perf_space_cuda = {
    .name = "cuda",
    .hint = "cuda:device",
    .heap = "cudaMalloc",
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .fill = cuda_fill,
    .start_clock = cuda_start_clock,
    .stop_clock = cuda_stop_clock,
    .copy = cuda_copy,
    .compute = cuda_compute,
    .open_gemm = perf_gemm_open,
    .gemm = cuda_gemm,
    .gemm_time = cuda_gemm_time,
    .stream = cuda_stream,
    .alloc_image = cuda_alloc_image,
    .free_image = cuda_free_image,
    .put = cuda_put,
    .get = cuda_get,
    .start_capture = cuda_start_capture,
    .end_capture = cuda_end_capture,
    .replay = cuda_replay,
    .free_graph = cuda_free_graph,
    .ceiling = perf_ceiling,
    .read_device = cuda_read_device,
};
