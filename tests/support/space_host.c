/* SPDX-License-Identifier: BSD-3-Clause */
/* space_host.c - the memory space of a build without CUDA: the host. */
#include "support/space.h"

#include <stdlib.h>
#include <string.h>

#include "support/suite.h"

void space_init(int rank_on_node)
{
    const char *memory = getenv("EPX_MEMORY");

    (void)rank_on_node;
    if (memory && strcmp(memory, "cuda:device") == 0)
        suite_skip("built without CUDA");
}

int space_is_device(void)
{
    return 0;
}

int space_num_gpus(void)
{
    return 0;
}

int space_shares_gpus(void)
{
    return 0;
}

void space_enter_thread(void)
{
}

EPX_Stream space_new_stream(void)
{
    return EPX_STREAM_NULL;
}

void space_free_stream(EPX_Stream stream)
{
    (void)stream;
}

void space_wait_stream(EPX_Stream stream)
{
    (void)stream;
}

void *space_alloc(size_t bytes)
{
    return malloc(bytes ? bytes : 1);
}

void *space_alloc_alone(size_t bytes)
{
    return malloc(bytes);
}

void space_free_alone(void *memory)
{
    free(memory);
}

void *space_alloc_elsewhere(size_t bytes)
{
    (void)bytes;
    return NULL;
}

void space_free_elsewhere(void *memory)
{
    (void)memory;
}

void space_free(void *memory)
{
    free(memory);
}

void space_put(void *to, const void *image, size_t bytes)
{
    if (bytes)
        memcpy(to, image, bytes);
}

void space_get(void *image, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(image, from, bytes);
}
