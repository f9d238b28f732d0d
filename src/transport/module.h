/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * module.h - between libepx and its modules: libepx_cuda, for device memory, that it opens when the
 * first device communicator is made, and libepx_mpi (control/mpi_module.h). libepx exports nothing
 * but EPX_ symbols, so each side hands the other a table.
 */
#ifndef EPX_TRANSPORT_MODULE_H
#define EPX_TRANSPORT_MODULE_H

#include "core/agree.h"
#include "core/letter_liveness.h"
#include "core/ready.h"
#include "core/request.h"
#include "core/route.h"
#include "transport/transport.h"

enum { EPX_MODULE_VERSION = 20 };

/*
 * What libepx gives its module, each function as CALL, or RUN if it returns nothing: (result, name
 * without epx_, parameters, arguments). module.c fills the table, module_core.c has the functions
 * that call through it under their own names.
 */
#define EPX_CORE_FUNCTIONS(CALL, RUN)                                                              \
    CALL(int, fail_list, (int code, const char *format, va_list values), (code, format, values))   \
    CALL(int, fail_quietly, (int code, const char *message), (code, message))                      \
    CALL(const char *, status_text, (int code), (code))                                            \
    CALL(const char *, status_message, (void), ())                                                 \
    CALL(const char *, status_function, (void), ())                                                \
    RUN(status_enter, (const char *function), (function))                                          \
    RUN(log_list, (enum epx_log_level level, const char *format, va_list values),                  \
        (level, format, values))                                                                   \
    CALL(int, comm_agree, (struct epx_comm * comm, int rc), (comm, rc))                            \
    CALL(int, comm_await, (struct epx_comm * comm, struct epx_joint joint), (comm, joint))         \
    CALL(int, comm_break, (struct epx_comm * comm, int rc), (comm, rc))                            \
    CALL(int, comm_max, (struct epx_comm * comm, int64_t value, int64_t * max),                    \
         (comm, value, max))                                                                       \
    CALL(int, comm_allgather, (struct epx_comm * comm, int64_t value, int64_t * values),           \
         (comm, value, values))                                                                    \
    CALL(int, comm_allgather_bytes,                                                                \
         (struct epx_comm * comm, const void *own, int bytes, void *all), (comm, own, bytes, all)) \
    CALL(int, comm_bcast, (struct epx_comm * comm, void *data, int bytes), (comm, data, bytes))    \
    RUN(comm_drain, (struct epx_comm * comm), (comm))                                              \
    RUN(comm_finish, (struct epx_comm * comm, const char *message), (comm, message))               \
    RUN(comm_give_up, (struct epx_comm * comm, const char *message), (comm, message))              \
    RUN(comm_describe_silence,                                                                     \
        (const struct epx_comm *comm, const char *operation, int culprit, char *message),          \
        (comm, operation, culprit, message))                                                       \
    CALL(int, letter_liveness_create,                                                              \
         (struct epx_comm * comm, struct epx_letter_liveness * *liveness), (comm, liveness))       \
    CALL(struct epx_liveness, letter_liveness_of, (struct epx_letter_liveness * liveness),         \
         (liveness))                                                                               \
    RUN(letter_liveness_free, (struct epx_letter_liveness * liveness), (liveness))                 \
    CALL(int, letter_liveness_beat,                                                                \
         (struct epx_letter_liveness * liveness, uint64_t position, char *message),                \
         (liveness, position, message))                                                            \
    RUN(letter_liveness_announce, (struct epx_letter_liveness * liveness, const char *message),    \
        (liveness, message))                                                                       \
    CALL(int, letter_liveness_blame,                                                               \
         (struct epx_letter_liveness * liveness, int first, const char *suspects, char *message),  \
         (liveness, first, suspects, message))                                                     \
    CALL(const char *, verb_name, (enum epx_verb verb), (verb))                                    \
    CALL(struct epx_ready, ready_of, (const struct epx_request *request), (request))               \
    CALL(const struct epx_transport_ops *, transport_host_messages, (void), ())

#define EPX_CORE_CALL(result, name, parameters, arguments) result(*name) parameters;
#define EPX_CORE_RUN(name, parameters, arguments) void(*name) parameters;
struct epx_core {
    EPX_CORE_FUNCTIONS(EPX_CORE_CALL, EPX_CORE_RUN)
};

/* Opens a module of this file name: near libepx, which may have been moved, or is not installed
 * yet; else where modules are installed. NULL if there is none that can be opened, and why. */
void *epx_module_find(const char *name, char reason[EPX_MAX_ERROR_STRING]);
const struct epx_core *epx_module_core(void);

/* Called in the module, first of all: where its functions of EPX_CORE_FUNCTIONS go. */
void epx_module_use(const struct epx_core *core);

/* A buffer that a call was given for device memory. */
struct epx_device_buffer {
    const char *name;
    const void *address;
    int64_t bytes;
    int written;
};

/* What a communicator on device memory can do besides the verbs of its ground. */
struct epx_device_ops {
    /* Local: ends the threads of a finished communicator; its memory stays. */
    void (*retire)(struct epx_device *device);
    /* Local, of a finished communicator: returns when no kernel and no thread of this rank uses the
     * memory of other ranks any more, and unmaps that. May be called again. */
    int (*leave)(struct epx_device *device);
    /* Local: calls step with the device as the current one. */
    int (*run)(const struct epx_device *device, int (*step)(void *argument), void *argument);
    /* Local: launch queues the kernels of an operation on its stream; poll then asks whether it is
     * complete. */
    int (*launch)(struct epx_request *request);
    int (*poll)(struct epx_request *request, int *moved);
    /* Local, after the communicator finished: whether the request has no kernels that still run. */
    int (*ended)(const struct epx_request *request);
    /* Local: the stream waits for the operation; the request is over then if it was captured. */
    int (*wait_enqueue)(struct epx_request *request, EPX_Stream stream);
    /* Local: EPX_ERR_BUFFER unless kernels can use all bytes of the buffers. */
    int (*check_buffers)(const struct epx_device *device, const struct epx_device_buffer *buffers,
                         int num);
    /* Local, with the lock held: copies counts and displacements of an alltoallv, by work on its
     * stream. The device keeps the memory, for other counts when nobody uses these any more. */
    int (*keep_counts)(struct epx_device *device, const struct epx_call *call,
                       struct epx_kept **kept);
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

/* Whether an address is in memory of a GPU that the host cannot use. For that a communicator on
 * host memory finds the driver when it is made, if the process has loaded it by then. */
void epx_module_find_driver(void);
int epx_module_has_driver(void);
int epx_module_is_device_memory(const void *address);

#endif
