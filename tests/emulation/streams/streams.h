/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * streams.h - streams, and the thread of the host that does what is queued on them. One lock guards
 * all that the emulation has; works run under it, kernels do not.
 */
#ifndef STREAMS_H
#define STREAMS_H

#include <cuda_runtime_api.h>

/* What a stream does. Kinds of work have this first. */
struct work {
    /* Does some of it. Returns whether it is done; it may be begun again then. */
    int (*step)(struct work *work);
    void (*release)(struct work *work);
    unsigned long long number; /* in the order of calls */
    struct work *next;
};

struct graph;

struct CUstream_st {
    unsigned long long id;
    int device, is_blocking, is_destroyed;
    struct work *first, **end;
    struct CUstream_st *next;
    /* while it is captured */
    struct graph *capture;
    int *tails, num_tails; /* nodes that the next one depends on */
};

void streams_lock(void);
void streams_unlock(void);
/* Under the lock: waits until some work has been done. */
void streams_wait(void);

/* The stream that a handle means; the default stream of the thread's device for 0. */
cudaStream_t streams_of(cudaStream_t handle);
/* Under the lock. */
cudaStream_t streams_create(int device, int is_blocking);
void streams_destroy(cudaStream_t stream);
/* Under the lock: queues work that will be done, and starts the thread that does it. */
void streams_queue(cudaStream_t stream, struct work *work);
/* Under the lock: waits for what has been queued so far; on all streams of a device. */
void streams_drain(cudaStream_t stream);
void streams_drain_device(int device);
/* The device that the calling thread uses. */
int streams_device(void);
void streams_use_device(int device);

#endif
