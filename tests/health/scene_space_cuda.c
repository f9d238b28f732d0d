/* SPDX-License-Identifier: BSD-3-Clause */
/* scene_space_cuda.c - the memory space of scenes in a build with CUDA: the host, or a GPU. No
 * process calls CUDA before it has been started as a rank: a child of fork could not. */
#include "health/scene_space.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/scenes.h"

static cudaStream_t stream; /* NULL = the host */
static void *place;         /* where exchanges have their rows */
static size_t place_bytes;

static void must(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    abort();
}

static void copy(void *to, const void *from, size_t bytes)
{
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    must(cudaStreamSynchronize(stream));
}

static void *put(const void *image, size_t bytes)
{
    if (bytes > place_bytes) {
        must(cudaMalloc(&place, bytes));
        place_bytes = bytes;
    }
    copy(place, image, bytes);
    return place;
}

static void get(void *image, size_t bytes)
{
    copy(image, place, bytes);
}

/* Exchanges are on the default stream. */
static void await_gpu(void)
{
    must(cudaStreamSynchronize(NULL));
}

static struct scene_memory gpu_memory = {put, get, NULL};

/* Asked in a child, for this process starts ranks by fork. */
static int has_gpu(void)
{
    int count = 0, status = 1;
    pid_t child = fork();

    if (child == 0)
        _exit(cudaGetDeviceCount(&count) == cudaSuccess && count > 0 ? 0 : 1);
    waitpid(child, &status, 0);
    return status == 0;
}

int space_of_scenes(void)
{
    const char *memory = getenv("EPX_MEMORY");

    if (!memory || strcmp(memory, "cuda:device") != 0)
        return 0;
    if (has_gpu())
        return 1;
    printf("SKIP: no CUDA device\n");
    return -1;
}

void space_take(int rank)
{
    int count = 1;

    must(cudaGetDeviceCount(&count));
    must(cudaSetDevice(rank % count));
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    scene_memory = &gpu_memory;
}

void space_await(void)
{
    gpu_memory.await = await_gpu;
}

void space_fill(void *memory, int byte, size_t bytes)
{
    if (!stream) {
        memset(memory, byte, bytes);
        return;
    }
    must(cudaMemsetAsync(memory, byte, bytes, stream));
    must(cudaStreamSynchronize(stream));
}

long space_find_other(const void *memory, int byte, size_t bytes)
{
    char *image = malloc(bytes);
    long found = -1;

    if (!image)
        return 0;
    if (stream)
        copy(image, memory, bytes);
    else
        memcpy(image, memory, bytes);
    for (size_t i = 0; i < bytes && found < 0; i++)
        if (image[i] != byte)
            found = (long)i;
    free(image);
    return found;
}

long space_used_kb(void)
{
    size_t unused = 0, all = 0;

    if (stream)
        must(cudaMemGetInfo(&unused, &all));
    return (long)((all - unused) / 1024);
}
