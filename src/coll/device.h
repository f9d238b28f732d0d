/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.h - a communicator on device memory, inside the CUDA module: windows, completions and
 * the order of its operations across streams.
 */
#ifndef EPX_COLL_DEVICE_H
#define EPX_COLL_DEVICE_H

#include <cuda_runtime_api.h>

#include "kernels/device.h"
#include "module.h"

struct epx_device {
    struct epx_comm *comm;
    const struct epx_transport *transport;
    int ordinal; /* of the GPU */
    int blocks;  /* of the kernels that wait for other ranks; the same on all ranks */
    struct epx_window *window; /* control words, then the stage, then what only this rank uses */
    char **control, **stage;   /* [R] device memory */
    int64_t stage_bytes;       /* on each rank */
    struct epx_device_state *state;

    struct epx_completion *completions; /* [EPX_MOST_IN_FLIGHT] pinned; the last is shared by all
                                           captured operations */
    struct epx_device_stats *stats;     /* pinned */
    cudaEvent_t *events;                /* [EPX_MOST_IN_FLIGHT] of operations, made when needed */
    cudaEvent_t *captured_events;       /* likewise, of those captured */
    int *unused, num_unused;            /* completions */
    uint32_t number;                    /* of operations, in completions */

    cudaStream_t stream; /* the library's own, before all others */
    cudaStream_t beside; /* for chunks */
    cudaEvent_t fork, join;

    /* the order of operations across streams, outside and inside a capture */
    cudaEvent_t order, capture_order;
    unsigned long long order_stream; /* id of the stream of the last operation */
    unsigned long long capture; /* id of the capture that capture_order was recorded in */
};

enum { EPX_MOST_IN_FLIGHT = 4096 };

extern const struct epx_transport_ops epx_transport_lsa;
extern const struct epx_device_ops epx_device_ops;

struct epx_device *epx_device_of(const struct epx_request *request);

/* What every kernel of the operation is given, and its ready note. */
struct epx_device_comm epx_device_comm_of(const struct epx_request *request);
struct epx_ready_note epx_ready_note_of(const struct epx_request *request);

/* Chunks of tokens, 0 where the blocks that wait do all; route constants alone decide. */
int32_t epx_device_chunks(const struct epx_request *request);
/* The launchers of an operation in chunks: what stores one, what takes one that has arrived. */
struct epx_chunk_steps {
    int (*store)(const void *args, struct epx_chunk chunk, EPX_Stream stream);
    int (*take)(const void *args, struct epx_chunk chunk, EPX_Stream stream);
    const void *args;
};
/* Stores num chunks on the operation's stream and takes all but the last, which has arrived when
 * the stream gets there, on a stream beside. */
int epx_device_queue_chunks(const struct epx_request *request, const struct epx_device_comm *comm,
                            int32_t num, struct epx_chunk_steps steps);

/* How rows of an operation go through a stage that holds `width` rows a token. */
struct epx_rounds epx_rounds_of(int64_t row_bytes, int32_t width, int32_t max_tokens,
                                int64_t stage_bytes);

/* Collective, agreed: see epx_device_ops. */
int epx_device_route_create(struct epx_route *route);
/* The plan of a route, for kernels. */
const struct epx_device_plan *epx_device_plan_of(const struct epx_request *request);

/* Local: queue the kernels of one operation on its stream. */
int epx_route_tokens_device(const struct epx_request *request);
int epx_dispatch_device(const struct epx_request *request);
int epx_combine_device(const struct epx_request *request);
int epx_alltoallv_device(const struct epx_request *request);

/* The code and the message of how an operation ended. */
int epx_outcome_report(const struct epx_request *request, const struct epx_outcome *outcome);

#endif
