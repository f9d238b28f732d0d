/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.h - a communicator on device memory, inside the CUDA module: what its files share. An
 * operation is kernels queued on the user's stream; the last of them writes its outcome into pinned
 * memory, where EPX_Wait and EPX_Test look. So no call asks CUDA whether anything is done.
 */
#ifndef EPX_COLL_DEVICE_DEVICE_H
#define EPX_COLL_DEVICE_DEVICE_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "coll/tuning.h"
#include "core/request.h"
#include "kernels/args/device_comm.h"
#include "kernels/control_words.h"
#include "transport/transport.h"

struct epx_letter_liveness;
struct epx_proxy;

#define EPX_ABORT_UNKNOWN UINT64_MAX

/* What the host reads of the GPU and tells it, besides completions; in pinned memory. */
struct epx_device_notes {
    uint64_t abort;   /* the abort word when last copied; EPX_ABORT_UNKNOWN during a copy */
    uint64_t verdict; /* of the host's own announcement; 0 = its kernel has not run */
    char reason[EPX_MAX_ERROR_STRING];                           /* of this host */
    char peer_reason[EPX_MAX_ERROR_STRING];                      /* of the rank that gave up */
    struct epx_device_stats stats;                               /* the last copy */
    struct epx_device_exchanges exchanges;                       /* the last copy */
    struct epx_wait_tally waits;                                 /* written by kernels */
    uint64_t arrived[EPX_MOST_DEVICE_RANKS];                     /* copied when a rank is silent */
    uint64_t ready[2 * EPX_MOST_DEVICE_RANKS * EPX_READY_WORDS]; /* copied then too */
};

/* What a capture of operations has. */
struct epx_side {
    cudaStream_t stream; /* in the capture as long as it lasts */
    cudaEvent_t fork, join;
    cudaEvent_t order; /* recorded after the last operation */
    int has_last;      /* whether order was recorded */
    struct epx_side *next;
};

/* The driver's calls for a stream to wait until a word is at least a value, and to write one. */
typedef CUresult CUDAAPI epx_wait_value(CUstream stream, CUdeviceptr word, cuuint64_t value,
                                        unsigned flags);
typedef epx_wait_value epx_write_value;
/* The driver's call that tells what a pointer belongs to. */
typedef CUresult CUDAAPI epx_pointer_attributes(unsigned num, CUpointer_attribute *attributes,
                                                void **data, CUdeviceptr pointer);

/* What the last operation has left to be queued later; rests.c keeps it. */
struct epx_device_rest {
    int left;                    /* by the operation that is being queued */
    struct epx_request *request; /* the operation; NULL = nothing is left */
    unsigned long long capture;  /* that it is in; 0 = none */
};

struct epx_device {
    struct epx_comm *comm;
    const struct epx_transport *transport;
    int ordinal;               /* of the GPU */
    struct epx_gpu gpu;        /* what this rank has of it */
    struct epx_window *window; /* control words, then the stage, then what only this rank uses */
    char **control, **stage;   /* [R] device memory */
    char **bank;               /* [2][R] device memory; NULL with messages */
    int32_t *node;             /* [2][R] device memory: nodes, places by node; NULL = one node */
    char *own_stage;           /* this rank's stage; with messages two, one behind the other */
    struct epx_device_state *state;

    struct epx_completion *completions; /* [EPX_MOST_IN_FLIGHT] pinned; the last is shared by all
                                           captured operations */
    struct epx_device_notes *notes;     /* pinned */
    cudaEvent_t *events;                /* [EPX_MOST_IN_FLIGHT] of captured operations */
    int *unused, num_unused;            /* completions that are free */
    uint32_t number;                    /* of the last operation; in completions */

    cudaStream_t stream; /* the library's own, of the highest priority */
    cudaEvent_t copied;  /* recorded after the last copy to notes */
    cudaStream_t rounds; /* where ranks exchange messages, else NULL; rounds_stream.c */
    cudaEvent_t rounds_edge;
    epx_wait_value *wait_value;
    epx_write_value *write_value;
    epx_pointer_attributes *pointer_attributes;
    struct epx_proxy *proxy;             /* where ranks exchange messages, else NULL */
    struct epx_letter_liveness *letters; /* where ranks exchange messages, else NULL */
    int64_t next_look_ns;
    uint32_t passes;

    struct epx_side *captures; /* sides of captures, and free ones */
    struct epx_side *side;     /* of the capture that an operation is being queued in */

    uint32_t num_graphs; /* made so far, the same on all ranks */

    struct epx_kept *kept; /* counts of persistent alltoallvs, and those that nobody uses now */

    struct epx_way way; /* of the last operation, or the half of it that was last queued */
    struct epx_device_rest rest;

    int last_completion;            /* of the last operation outside captures */
    uint32_t last_number;           /* 0 = there is none */
    unsigned long long last_stream; /* id of its stream */
};

enum { EPX_MOST_IN_FLIGHT = 4096, EPX_SHARED_COMPLETION = EPX_MOST_IN_FLIGHT - 1 };

static inline struct epx_device *epx_device_of(const struct epx_request *request)
{
    return request->comm->transport->device;
}

#endif
