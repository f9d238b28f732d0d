/* SPDX-License-Identifier: BSD-3-Clause */
/* scene_space_host.c - the memory space of scenes in a build without CUDA: the host. */
#include "health/scene_space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int space_of_scenes(void)
{
    const char *memory = getenv("EPX_MEMORY");

    if (!memory || strcmp(memory, "cuda:device") != 0)
        return 0;
    printf("SKIP: built without CUDA\n");
    return -1;
}

void space_take(int rank)
{
    (void)rank;
}

void space_await(void)
{
}

void space_fill(void *memory, int byte, size_t bytes)
{
    memset(memory, byte, bytes);
}

long space_find_other(const void *memory, int byte, size_t bytes)
{
    const char *at = memory;

    for (size_t i = 0; i < bytes; i++)
        if (at[i] != byte)
            return (long)i;
    return -1;
}

long space_used_kb(void)
{
    return 0;
}
