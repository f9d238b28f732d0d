/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * graphs.h - works with an order between them, as a capture of streams makes them. All functions
 * are called under the lock; they return errors as CUDA's runtime does.
 */
#ifndef GRAPHS_H
#define GRAPHS_H

#include <cuda_runtime_api.h>

#include "emulation/streams/streams.h"

struct graph;

/* Queues work on a stream, or notes it if the stream is captured. */
cudaError_t graph_queue(cudaStream_t stream, struct work *work);

cudaError_t graph_begin(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t graph_end(cudaStream_t stream, struct graph **graph);
enum cudaStreamCaptureStatus graph_status(cudaStream_t stream, unsigned long long *id);
/* Events in captures: what they were recorded behind, and what waits for them. */
cudaError_t graph_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t graph_wait(cudaStream_t stream, cudaEvent_t event);
/* A call that captures forbid: of the stream; of any stream while this thread's mode says so. */
cudaError_t graph_refuse(cudaStream_t stream);
cudaError_t graph_refuse_all(void);
void graph_exchange_mode(enum cudaStreamCaptureMode *mode);

struct graph *graph_keep(struct graph *graph);
void graph_forget(struct graph *graph);
struct work *graph_work(struct graph *graph);
/* How many nodes it has, and what the i-th does. */
int graph_num_nodes(const struct graph *graph);
const struct work *graph_node(const struct graph *graph, int i);

#endif
