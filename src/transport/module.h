/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * module.h - between libepx and libepx_cuda, the module for device memory that it opens when the
 * first device communicator is made. libepx exports nothing but EPX_ symbols, so each side hands
 * the other a table.
 */
#ifndef EPX_TRANSPORT_MODULE_H
#define EPX_TRANSPORT_MODULE_H

#include "core/ready.h"
#include "core/request.h"
#include "core/route.h"
#include "transport/mpi/mpi_liveness.h"
#include "transport/transport.h"

enum { EPX_MODULE_VERSION = 11 };

/* The functions that libepx gives its module; module_cuda.c wraps each under its own name. */
struct epx_core {
    int (*fail_quietly)(int code, const char *message);
    const char *(*message)(void);
    const char *(*function)(void);
    void (*enter)(const char *function);
    void (*log)(enum epx_log_level level, const char *format, ...) EPX_PRINTF(2, 3);
    int (*agree)(struct epx_comm *comm, int rc);
    int (*max)(struct epx_comm *comm, int64_t value, int64_t *max);
    int (*allgather)(struct epx_comm *comm, int64_t value, int64_t *values);
    int (*allgather_bytes)(struct epx_comm *comm, const void *own, int bytes, void *all);
    int (*bcast)(struct epx_comm *comm, void *data, int bytes);
    void (*drain)(struct epx_comm *comm);
    void (*finish)(struct epx_comm *comm, const char *message);
    void (*give_up)(struct epx_comm *comm, const char *message);
    void (*describe_silence)(const struct epx_comm *comm, const char *operation, int culprit,
                             char *message);
    int (*liveness_create)(struct epx_comm *comm, struct epx_mpi_liveness **liveness);
    void (*liveness_free)(struct epx_mpi_liveness *liveness);
    int (*liveness_beat)(struct epx_mpi_liveness *liveness, uint64_t position, char *message);
    void (*liveness_announce)(struct epx_mpi_liveness *liveness, const char *message);
    int (*liveness_blame)(struct epx_mpi_liveness *liveness, int first, const char *suspects,
                          char *message);
    const char *(*verb_name)(enum epx_verb verb);
    int64_t (*worst_capacity)(const EPX_Route_attr *attr, int num_ranks, int num_local);
    struct epx_ready (*ready_of)(const struct epx_request *request);
    const struct epx_transport_ops *(*host_messages)(void);
};

/* What a communicator on device memory can do besides the verbs of its ground. */
struct epx_device_ops {
    /* Local: ends the threads of a finished communicator; its memory stays. */
    void (*retire)(struct epx_device *device);
    /* Local: launch queues the kernels of an operation on its stream; poll then asks whether it is
     * complete. */
    int (*launch)(struct epx_request *request);
    int (*poll)(struct epx_request *request, int *moved);
    /* Local, after the communicator finished: whether the request has no kernels that still run. */
    int (*ended)(const struct epx_request *request);
    /* Local: the stream waits for the operation; the request is over then if it was captured. */
    int (*wait_enqueue)(struct epx_request *request, EPX_Stream stream);
    /* Local: EPX_ERR_BUFFER unless kernels can use the address. */
    int (*check_buffer)(const struct epx_device *device, const char *name, const void *address);
    /* Local: the error, if it was not told yet, of an operation in a replayed graph; its message
     * becomes this thread's last one. */
    int (*take_replay_error)(struct epx_device *device);
    /* Local: adds the GPU's counters, which takes some microseconds; if the copy takes half a
     * second, the numbers are those of the last call. */
    void (*add_stats)(struct epx_device *device, EPX_Stats *stats);
};

/* What the module gives libepx. */
struct epx_module {
    int version;
    const struct epx_listed *transports;      /* the list as the module has it */
    const struct epx_ground *direct, *staged; /* on device memory */
};

typedef const struct epx_module *epx_module_entry(const struct epx_core *core);

/* Opens the module at the first call. NULL if that fails; epx_status_message then says why. */
const struct epx_module *epx_module_open(void);

/* Whether this process has a current CUDA context; asks without loading the driver. */
int epx_module_has_context(void);

#endif
