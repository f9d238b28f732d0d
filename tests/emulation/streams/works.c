/* SPDX-License-Identifier: BSD-3-Clause */
/* works.c - the kinds of work that streams do. */
#define _GNU_SOURCE
#include "emulation/streams/works.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emulation/streams/graphs.h"
#include "emulation/device/kernels.h"

struct launch {
    struct work work;
    struct emulated_kernel launch;
    int device;
    struct kernel *kernel; /* NULL = not begun */
};

struct copy {
    struct work work;
    void *to;
    const void *from;
    size_t bytes;
    char own[]; /* what from was, or nothing */
};

struct set {
    struct work work;
    void *to;
    int value;
    size_t bytes;
};

struct call {
    struct work work;
    void (*function)(void *);
    void *argument;
};

struct word {
    struct work work;
    uint64_t *word, value;
    int equal;
};

struct turn {
    struct work work;
    cudaEvent_t event;
    unsigned long long number;
};

void *works_memory(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);

    if (!memory)
        abort();
    return memory;
}

static void release_memory(struct work *work)
{
    free(work);
}

static void *make(size_t bytes, int (*step)(struct work *))
{
    struct work *work = works_memory(bytes);

    work->step = step;
    work->release = release_memory;
    return work;
}

static int step_kernel(struct work *work)
{
    struct launch *launch = (struct launch *)(void *)work;

    if (!launch->kernel)
        launch->kernel = kernel_start(&launch->launch, launch->device, NULL);
    if (!kernel_has_ended(launch->kernel))
        return 0;
    kernel_free(launch->kernel);
    launch->kernel = NULL;
    return 1;
}

static void release_kernel(struct work *work)
{
    struct launch *launch = (struct launch *)(void *)work;

    launch->launch.release(launch->launch.arguments);
    free(launch);
}

struct work *works_kernel(const struct emulated_kernel *given, int device)
{
    struct launch *launch = make(sizeof(*launch), step_kernel);

    launch->work.release = release_kernel;
    launch->launch = *given;
    launch->device = device;
    return &launch->work;
}

int works_is_kernel(const struct work *work)
{
    return work->step == step_kernel;
}

const struct emulated_kernel *works_launch(const struct work *work)
{
    return &((const struct launch *)(const void *)work)->launch;
}

void works_overtake(const struct work *before, struct work *work)
{
    const struct launch *runs = (const struct launch *)(const void *)before;
    struct launch *launch = (struct launch *)(void *)work;

    if (works_is_kernel(before) && works_is_kernel(work) && launch->launch.overtakes &&
        !launch->kernel && runs->kernel && kernel_lets_next_begin(runs->kernel))
        launch->kernel = kernel_start(&launch->launch, launch->device, runs->kernel);
}

static int step_copy(struct work *work)
{
    struct copy *copy = (struct copy *)(void *)work;

    memmove(copy->to, copy->from, copy->bytes);
    return 1;
}

struct work *works_copy(void *to, const void *from, size_t bytes)
{
    struct copy *copy = make(sizeof(*copy), step_copy);

    copy->to = to;
    copy->from = from;
    copy->bytes = bytes;
    return &copy->work;
}

struct work *works_copy_of(void *to, const void *from, size_t bytes)
{
    struct copy *copy = make(sizeof(*copy) + bytes, step_copy);

    memcpy(copy->own, from, bytes);
    copy->to = to;
    copy->from = copy->own;
    copy->bytes = bytes;
    return &copy->work;
}

static int step_set(struct work *work)
{
    struct set *set = (struct set *)(void *)work;

    memset(set->to, set->value, set->bytes);
    return 1;
}

struct work *works_set(void *to, int value, size_t bytes)
{
    struct set *set = make(sizeof(*set), step_set);

    set->to = to;
    set->value = value;
    set->bytes = bytes;
    return &set->work;
}

static int step_call(struct work *work)
{
    struct call *call = (struct call *)(void *)work;

    call->function(call->argument);
    return 1;
}

struct work *works_call(void (*function)(void *), void *argument)
{
    struct call *call = make(sizeof(*call), step_call);

    call->function = function;
    call->argument = argument;
    return &call->work;
}

static int step_wait_value(struct work *work)
{
    const struct word *wait = (struct word *)(void *)work;
    uint64_t now = __atomic_load_n(wait->word, __ATOMIC_ACQUIRE);

    return wait->equal ? now == wait->value : (int64_t)(now - wait->value) >= 0;
}

struct work *works_wait_value(const uint64_t *word, uint64_t value, int equal)
{
    struct word *wait = make(sizeof(*wait), step_wait_value);

    wait->word = (uint64_t *)(uintptr_t)word;
    wait->value = value;
    wait->equal = equal;
    return &wait->work;
}

static int step_write_value(struct work *work)
{
    const struct word *write = (struct word *)(void *)work;

    __atomic_store_n(write->word, write->value, __ATOMIC_RELEASE);
    return 1;
}

struct work *works_write_value(uint64_t *word, uint64_t value)
{
    struct word *write = make(sizeof(*write), step_write_value);

    write->word = word;
    write->value = value;
    return &write->work;
}

void works_forget_event(cudaEvent_t event)
{
    if (--event->references)
        return;
    graph_forget(event->capture);
    free(event->tails);
    free(event);
}

static void release_turn(struct work *work)
{
    struct turn *turn = (struct turn *)(void *)work;

    works_forget_event(turn->event);
    free(turn);
}

static struct work *make_turn(cudaEvent_t event, int (*step)(struct work *))
{
    struct turn *turn = make(sizeof(*turn), step);

    turn->work.release = release_turn;
    turn->event = event;
    turn->number = event->recorded;
    event->references++;
    return &turn->work;
}

static int step_record(struct work *work)
{
    struct turn *turn = (struct turn *)(void *)work;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    turn->event->come = turn->number;
    turn->event->come_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    return 1;
}

struct work *works_record(cudaEvent_t event)
{
    event->recorded++;
    return make_turn(event, step_record);
}

static int step_wait_event(struct work *work)
{
    struct turn *turn = (struct turn *)(void *)work;

    return turn->event->come >= turn->number;
}

struct work *works_wait_event(cudaEvent_t event)
{
    return make_turn(event, step_wait_event);
}
