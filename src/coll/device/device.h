/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.h - a communicator on device memory, inside the CUDA module: windows, completions and
 * the order of its operations across streams.
 */
#ifndef EPX_COLL_DEVICE_DEVICE_H
#define EPX_COLL_DEVICE_DEVICE_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "coll/device/proxy.h"
#include "kernels/device_args.h"
#include "transport/module.h"

#define EPX_ABORT_UNKNOWN UINT64_MAX

/* What the host reads of the GPU and tells it, besides completions; in pinned memory. */
struct epx_device_notes {
    uint64_t abort;   /* the abort word of the last look; EPX_ABORT_UNKNOWN during one */
    uint64_t verdict; /* of the host's own announcement; 0 = its kernel has not run */
    char reason[EPX_MAX_ERROR_STRING];      /* of this host */
    char peer_reason[EPX_MAX_ERROR_STRING]; /* of the rank that gave up */
    struct epx_device_stats stats;          /* the last copy */
    struct epx_device_exchanges exchanges;  /* likewise */
    uint64_t arrived[EPX_MOST_DEVICE_RANKS]; /* with messages: a copy, when one lacks */
};

/* What operations have beside the user's streams. */
struct epx_side {
    cudaStream_t stream; /* for chunks */
    cudaEvent_t fork, join;
    cudaEvent_t order; /* in a capture, of its last operation */
    int has_last;      /* whether there is one */
    struct epx_side *next;
};

/* The driver's calls for a stream to wait until a word is at least a value, and to write one. */
typedef CUresult CUDAAPI epx_wait_value(CUstream stream, CUdeviceptr word, cuuint64_t value,
                                        unsigned flags);
typedef epx_wait_value epx_write_value;

struct epx_device {
    struct epx_comm *comm;
    const struct epx_transport *transport;
    int ordinal; /* of the GPU */
    int blocks;  /* of the kernels that wait for other ranks; the same on all ranks */
    struct epx_window *window; /* control words, then the stage, then what only this rank uses */
    char **control, **stage;   /* [R] device memory */
    int32_t *node;             /* [2][R] device memory: nodes, places by node; NULL = one node */
    char *own_stage;           /* this rank's; for messages two, one behind the other */
    int64_t stage_bytes;       /* of one, on each rank */
    struct epx_device_state *state;

    struct epx_completion *completions; /* [EPX_MOST_IN_FLIGHT] pinned; the last is shared by all
                                           captured operations */
    struct epx_device_notes *notes;     /* pinned */
    cudaEvent_t *events;                /* [EPX_MOST_IN_FLIGHT] of those captured, made when
                                           needed */
    int *unused, num_unused;            /* completions */
    uint32_t number;                    /* of operations, in completions */

    cudaStream_t stream; /* the library's own, before all others */
    cudaEvent_t copied;  /* of what was last copied to notes */
    epx_wait_value *wait_value;
    epx_write_value *write_value;
    struct epx_proxy *proxy; /* where ranks exchange messages, else NULL */
    struct epx_mpi_liveness *mpi_liveness; /* where ranks exchange messages, else NULL */
    int64_t next_look_ns;
    uint32_t passes;

    struct epx_side *plain;    /* outside captures */
    struct epx_side *captures; /* those of captures, and free ones */
    struct epx_side *side;     /* of the operation that is being queued */

    int last_completion; /* of the last operation outside captures */
    uint32_t last_number;           /* 0 = there is none */
    unsigned long long last_stream; /* id of its stream */
};

enum { EPX_MOST_IN_FLIGHT = 4096, EPX_SHARED_COMPLETION = EPX_MOST_IN_FLIGHT - 1 };

extern const struct epx_transport_ops epx_transport_lsa;
extern const struct epx_transport_ops epx_transport_ipc;
extern const struct epx_transport_ops epx_transport_nccl;
extern const struct epx_transport_ops epx_transport_ucx_device;
extern const struct epx_transport_ops epx_transport_bounce;
extern const struct epx_device_ops epx_device_ops;

struct epx_device *epx_device_of(const struct epx_request *request);

/* What every kernel of the operation is given, and its ready note. */
struct epx_device_comm epx_device_comm_of(const struct epx_request *request);
struct epx_ready_note epx_ready_note_of(const struct epx_request *request);

/* Collective, agreed: the device's window and where things lie in it. */
int epx_control_window_create(struct epx_device *device);

/* EPX_ERR_ARG for a stream of another device. To ask one in a capture would end the capture. */
int epx_device_check_stream(const struct epx_device *device, EPX_Stream stream);
/* The stream's capture, 0 if it has none. */
int epx_device_find_capture(EPX_Stream stream, unsigned long long *capture);
/* The stream waits for the operation before; what is queued then is the next. */
int epx_device_queue_behind(struct epx_device *device, EPX_Stream stream,
                            unsigned long long capture);
/* The operation is queued; in a capture its event is recorded. */
int epx_device_queue_end(struct epx_device *device, const struct epx_request *request,
                         unsigned long long capture);
/* The stream waits for the operation. */
int epx_device_queue_wait(const struct epx_device *device, const struct epx_request *request,
                          EPX_Stream stream);
/* A call of the driver, which the module is not linked with. */
cudaError_t epx_find_driver_call(const char *name, void **call);
int epx_device_init_order(struct epx_device *device);
void epx_device_end_order(struct epx_device *device);

/* Chunks of tokens, 0 where the blocks that wait do all; route constants alone decide. */
int32_t epx_device_chunks(const struct epx_request *request);
/* Stores args->chunks chunks on the operation's stream and spreads all but the last, which has
 * arrived when the stream gets there, on a stream beside. */
int epx_device_queue_chunks(const struct epx_request *request,
                            const struct epx_dispatch_rows *args);

/* How rows of an operation go through a stage that holds `width` rows a token. */
struct epx_rounds epx_rounds_of(int64_t row_bytes, int32_t width, int32_t max_tokens,
                                int64_t stage_bytes);
/* The same for messages; so many words follow a row. */
struct epx_rounds epx_message_rounds_of(const struct epx_request *request, int32_t words);

/* Collective, agreed: see epx_device_ops. */
int epx_device_route_create(struct epx_route *route);
/* Local: fills what an operation takes of its route's window with a pattern, on its stream. */
int epx_device_route_poison(const struct epx_request *request);
/* The plan of a route, for kernels. */
const struct epx_device_plan *epx_device_plan_of(const struct epx_request *request);

/* Local: queue the kernels of one operation on its stream. */
int epx_route_tokens_device(const struct epx_request *request);
int epx_dispatch_device(const struct epx_request *request);
int epx_combine_device(const struct epx_request *request);
int epx_alltoallv_device(const struct epx_request *request);

/* The same where ranks exchange messages. */
int epx_route_tokens_messages(const struct epx_request *request);
int epx_dispatch_messages(const struct epx_request *request);
int epx_combine_messages(const struct epx_request *request);
int epx_alltoallv_messages(const struct epx_request *request);
/* Their first step. */
int epx_agree_messages(const struct epx_request *request);
/* The arguments that both ways share. */
struct epx_route_tokens epx_route_args_of(const struct epx_request *request);
struct epx_dispatch_rows epx_dispatch_args_of(const struct epx_request *request);
struct epx_combine_rows epx_combine_args_of(const struct epx_request *request);
struct epx_alltoallv_rows epx_alltoallv_args_of(const struct epx_request *request);

extern const struct epx_liveness_ops epx_device_liveness;
/* Now and then: an error if the context was lost, which never completes anything. */
int epx_device_check(const struct epx_device *device, struct epx_request *request);
/* Copies from device to pinned memory; whether it came in time. */
int epx_device_copy(struct epx_device *device, void *to, const void *from, size_t bytes);
/* The communicator is over, as an outcome says that has the abort word. */
void epx_device_note_abort(struct epx_device *device, const struct epx_outcome *outcome);

/* The code and the message of how an operation ended; request NULL in a replayed graph. */
int epx_outcome_report(struct epx_device *device, const struct epx_request *request,
                       const struct epx_outcome *outcome);
/* That of a replayed graph which no one has been told of. */
int epx_outcome_take_replay_error(struct epx_device *device);

#endif
