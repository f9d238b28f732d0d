/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels.c - kernels that run on the emulated devices. Blocks start in the order of their numbers,
 * and of kernels, as long as a device has room for their threads; a block that has started keeps
 * its room until it ends. So a kernel whose blocks wait for blocks that do not fit hangs, as on a
 * GPU.
 */
#include "emulation/device/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "emulation/device/blocks.h"
#include "emulation/device/settings.h"
#include "emulation/device/threads.h"

enum { THREADS_OF_SM = 2048, MOST_BLOCKS = 4096 };
enum { ROUNDS_OF_BOTH = 4 }; /* that a kernel which lets the next one begin runs beside it */

struct kernel {
    const struct emulated_kernel *launch;
    int device;
    unsigned started, ended, let_next_begin;
    const struct kernel *before; /* which it has overtaken; NULL = none, or it is gone */
    struct kernel *next;
};

static struct {
    struct block *block;
    struct kernel *kernel;
} resident[MOST_BLOCKS];
static int num_resident;
static struct kernel *kernels; /* the oldest first */
static unsigned threads[SETTINGS_MOST_GPUS];

static void trace(const struct kernel *kernel, const char *what)
{
    if (settings_trace())
        fprintf(stderr, "emulation[%d]: %s %s, %u blocks of %u threads\n", (int)getpid(), what,
                kernel->launch->launcher, kernel->launch->blocks.x, kernel->launch->threads.x);
}

struct kernel *kernel_start(const struct emulated_kernel *launch, int device,
                            const struct kernel *before)
{
    struct kernel *kernel = calloc(1, sizeof(*kernel)), **end = &kernels;

    if (!kernel)
        abort();
    kernel->launch = launch;
    kernel->device = device;
    kernel->before = before;
    while (*end)
        end = &(*end)->next;
    *end = kernel;
    trace(kernel, "begin");
    return kernel;
}

int kernel_has_ended(const struct kernel *kernel)
{
    return kernel->ended == kernel->launch->blocks.x;
}

int kernel_lets_next_begin(const struct kernel *kernel)
{
    return kernel->let_next_begin == kernel->launch->blocks.x;
}

static struct kernel *kernel_of(const struct block *block)
{
    struct kernel *kernel = kernels;

    while (kernel->launch != block->launch)
        kernel = kernel->next;
    return kernel;
}

void emulated_let_next_begin(void)
{
    struct block *block = threads_here()->block;

    if (block->lets_next_begin)
        return;
    block->lets_next_begin = 1;
    kernel_of(block)->let_next_begin++;
    for (int i = 0; i < ROUNDS_OF_BOTH; i++)
        emulated_spin();
}

void emulated_await_kernel_before(void)
{
    const struct kernel *kernel = kernel_of(threads_here()->block);

    while (kernel->before && !kernel_has_ended(kernel->before))
        emulated_spin();
}

void kernel_free(struct kernel *kernel)
{
    struct kernel **link = &kernels;

    while (*link != kernel)
        link = &(*link)->next;
    *link = kernel->next;
    for (struct kernel *other = kernels; other; other = other->next)
        if (other->before == kernel)
            other->before = NULL;
    trace(kernel, "end");
    free(kernel);
}

int kernels_num(void)
{
    return kernels != NULL;
}

static int has_room(const struct kernel *kernel)
{
    unsigned all = (unsigned)settings_sms(kernel->device) * THREADS_OF_SM;

    return num_resident < MOST_BLOCKS && threads[kernel->device] + kernel->launch->threads.x <= all;
}

/* Starts blocks; a kernel whose next block does not fit keeps later kernels from passing it. */
static void start_blocks(int device)
{
    for (struct kernel *kernel = kernels; kernel; kernel = kernel->next) {
        while (kernel->device == device && kernel->started < kernel->launch->blocks.x) {
            uint3 index = {kernel->started, 0, 0};

            if (!has_room(kernel))
                return;
            resident[num_resident].block = block_start(kernel->launch, index);
            resident[num_resident++].kernel = kernel;
            threads[device] += kernel->launch->threads.x;
            kernel->started++;
        }
    }
}

static void end_block(int i)
{
    struct kernel *kernel = resident[i].kernel;

    threads[kernel->device] -= kernel->launch->threads.x;
    kernel->ended++;
    kernel->let_next_begin += !resident[i].block->lets_next_begin;
    block_free(resident[i].block);
    resident[i] = resident[--num_resident];
}

int kernels_run(void)
{
    int moved = 0, start;

    for (int device = 0; device < SETTINGS_MOST_GPUS; device++)
        start_blocks(device);
    start = (int)blocks_random((unsigned)num_resident);
    for (int i = 0; i < num_resident; i++)
        moved |= block_run(resident[(start + i) % num_resident].block);
    for (int i = num_resident - 1; i >= 0; i--)
        if (block_has_ended(resident[i].block))
            end_block(i);
    return moved;
}
