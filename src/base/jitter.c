/* SPDX-License-Identifier: BSD-3-Clause */
/* jitter.c - sleeps of random length, seeded by JITTER_SEED and the rank, and the byte pattern. */
#include "base/jitter.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHORT_NS = 100000, LONG_NS = 3000000 };

static atomic_ullong counter;
static atomic_int is_seeded;

static uint64_t number_of(const char *variable)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 10) : 0;
}

uint64_t epx_jitter_seed(void)
{
    return number_of("JITTER_SEED") * 1000003 + number_of("OMPI_COMM_WORLD_RANK") +
           number_of("PMI_RANK");
}

/* splitmix64: Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014. */
static uint64_t next_random(void)
{
    const uint64_t step = 0x9e3779b97f4a7c15;
    uint64_t z;

    if (!atomic_exchange(&is_seeded, 1))
        atomic_fetch_add(&counter, epx_jitter_seed());
    z = atomic_fetch_add(&counter, step) + step;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

void epx_jitter(void)
{
    uint64_t random = next_random();
    struct timespec time = {0, 0};

    if (random % 16)
        return;
    time.tv_nsec = (long)((random >> 32) % (random % 4096 ? SHORT_NS : LONG_NS));
    nanosleep(&time, NULL);
}

void epx_poison(void *memory, size_t bytes)
{
    if (bytes)
        memset(memory, EPX_PATTERN, bytes);
}

int epx_jitter_poisons(void)
{
    return next_random() % 4 != 0;
}
