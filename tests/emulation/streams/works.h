/* SPDX-License-Identifier: BSD-3-Clause */
/* works.h - the kinds of work that streams do. All functions are called under the lock. */
#ifndef WORKS_H
#define WORKS_H

#include <cuda_runtime_api.h>

#include "emulation/include/emulation.h"
#include "emulation/streams/streams.h"

struct work *works_kernel(const struct emulated_kernel *launch, int device);
int works_is_kernel(const struct work *work);
/* What a kernel was launched with. */
const struct emulated_kernel *works_launch(const struct work *work);
/* Begins a kernel that may overtake the one before it, which runs, if that lets it. */
void works_overtake(const struct work *before, struct work *work);
struct work *works_copy(void *to, const void *from, size_t bytes);
/* Copies what the source holds now. */
struct work *works_copy_of(void *to, const void *from, size_t bytes);
struct work *works_set(void *to, int value, size_t bytes);
/* Calls a function of the host. */
struct work *works_call(void (*function)(void *), void *argument);
/* Waits until *word is at least `value`, modulo 2^64, or, if it is `equal`, until it equals. */
struct work *works_wait_value(const uint64_t *word, uint64_t value, int equal);
struct work *works_write_value(uint64_t *word, uint64_t value);
struct work *works_record(cudaEvent_t event);
struct work *works_wait_event(cudaEvent_t event);

struct CUevent_st {
    unsigned long long recorded, come; /* how often */
    int references;
    int64_t come_ns;
    /* recorded in a capture */
    struct graph *capture;
    int *tails, num_tails;
};
void works_forget_event(cudaEvent_t event);

/* Memory of the emulation itself; never NULL. */
void *works_memory(size_t bytes);

#endif
