/* SPDX-License-Identifier: BSD-3-Clause */
/* space_cuda.c - the memory space of a build with CUDA: the host or this rank's GPU. */
#include "support/space.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"

static cudaStream_t copies; /* NULL on host memory */
static int ordinal;         /* of this rank's GPU */
static int shares_gpus;     /* whether any ranks do */

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    suite_complain(__FILE__, __LINE__, what, "%s", cudaGetErrorString(error));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Tells NCCL that pretended nodes are hosts, between which it then uses the network. */
static void pretend_hosts(void)
{
    const char *per_node = getenv("EPX_RANKS_PER_NODE");
    char host[32];

    if (!per_node || atoi(per_node) < 1)
        return;
    snprintf(host, sizeof(host), "node%d", suite_rank / atoi(per_node));
    setenv("NCCL_HOSTID", host, 0);
}

void space_init(int rank_on_node)
{
    const char *memory = getenv("EPX_MEMORY");
    int devices = space_num_gpus();

    if (!memory || strcmp(memory, "cuda:device") != 0)
        return;
    if (devices < 1)
        suite_skip("no CUDA device");
    pretend_hosts();
    ordinal = rank_on_node % devices;
    shares_gpus = rank_on_node >= devices;
    MPI_Allreduce(MPI_IN_PLACE, &shares_gpus, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    must(cudaSetDevice(ordinal), "cudaSetDevice");
    must(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking), "cudaStreamCreate");
}

int space_is_device(void)
{
    return copies != NULL;
}

int space_num_gpus(void)
{
    int devices = 0;

    return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

int space_shares_gpus(void)
{
    return shares_gpus;
}

void space_enter_thread(void)
{
    if (copies)
        must(cudaSetDevice(ordinal), "cudaSetDevice");
}

EPX_Stream space_new_stream(void)
{
    cudaStream_t stream = NULL;

    if (copies)
        must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return stream;
}

void space_free_stream(EPX_Stream stream)
{
    if (stream)
        must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

void space_wait_stream(EPX_Stream stream)
{
    if (copies)
        must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

/* Makes a device current; returns the device that was. */
static int enter(int device)
{
    int before = device;

    must(cudaGetDevice(&before), "cudaGetDevice");
    if (before != device)
        must(cudaSetDevice(device), "cudaSetDevice");
    return before;
}

void *space_alloc(size_t bytes)
{
    void *memory = NULL;
    int before;

    if (!copies)
        return malloc(bytes ? bytes : 1);
    before = enter(ordinal);
    must(cudaMallocAsync(&memory, bytes ? bytes : 1, copies), "cudaMallocAsync");
    must(cudaStreamSynchronize(copies), "cudaStreamSynchronize");
    enter(before);
    return memory;
}

void *space_alloc_alone(size_t bytes)
{
    void *memory = NULL;
    int before = enter(ordinal);

    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    enter(before);
    return memory;
}

void space_free_alone(void *memory)
{
    must(cudaFree(memory), "cudaFree");
}

void *space_alloc_elsewhere(size_t bytes)
{
    void *memory = NULL;
    int devices = space_num_gpus(), before;

    if (!copies || devices < 2)
        return NULL;
    before = enter((ordinal + 1) % devices);
    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    enter(before);
    return memory;
}

void space_free_elsewhere(void *memory)
{
    must(cudaFree(memory), "cudaFree");
}

/* cudaFree would wait for operations in flight, and keep their proxies from launching meanwhile. */
void space_free(void *memory)
{
    int before;

    if (!copies) {
        free(memory);
    } else if (memory) {
        before = enter(ordinal);
        must(cudaFreeAsync(memory, copies), "cudaFreeAsync");
        enter(before);
    }
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (copies) {
        must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies), "cudaMemcpyAsync");
        must(cudaStreamSynchronize(copies), "cudaStreamSynchronize");
    } else if (bytes) {
        memcpy(to, from, bytes);
    }
}

void space_put(void *to, const void *image, size_t bytes)
{
    copy(to, image, bytes);
}

void space_get(void *image, const void *from, size_t bytes)
{
    copy(image, from, bytes);
}
