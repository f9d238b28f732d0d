/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * module_cuda.c - the entry of libepx_cuda, and what it calls in libepx under the names that both
 * sides use.
 */
#include <stdarg.h>
#include <stdio.h>

#include "coll/device/ground_device.h"
#include "core/agree.h"
#include "core/progress.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/module.h"

static const struct epx_core *core;

int epx_fail_quietly(int code, const char *message)
{
    return core->fail_quietly(code, message);
}

int epx_fail(int code, const char *format, ...)
{
    const char *function = core->function();
    char message[EPX_MAX_ERROR_STRING];
    int prefix = function ? snprintf(message, sizeof(message), "%s: ", function) : 0;
    va_list args;

    va_start(args, format);
    vsnprintf(message + prefix, sizeof(message) - (size_t)prefix, format, args);
    va_end(args);
    core->log(EPX_LOG_LEVEL_ERROR, "%s", message);
    return core->fail_quietly(code, message);
}

int epx_fail_cuda(cudaError_t error, const char *call)
{
    int code = error == cudaErrorMemoryAllocation ? EPX_ERR_NO_MEM : EPX_ERR_CUDA;

    return epx_fail(code, "%s: %s", call, cudaGetErrorString(error));
}

void epx_log(enum epx_log_level level, const char *format, ...)
{
    char message[EPX_MAX_ERROR_STRING];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    core->log(level, "%s", message);
}

const char *epx_status_message(void)
{
    return core->message();
}

const char *epx_status_function(void)
{
    return core->function();
}

void epx_status_enter(const char *function)
{
    core->enter(function);
}

int epx_comm_agree(struct epx_comm *comm, int rc)
{
    return core->agree(comm, rc);
}

int epx_comm_max(struct epx_comm *comm, int64_t value, int64_t *max)
{
    return core->max(comm, value, max);
}

int epx_comm_allgather(struct epx_comm *comm, int64_t value, int64_t *values)
{
    return core->allgather(comm, value, values);
}

int epx_comm_allgather_bytes(struct epx_comm *comm, const void *own, int bytes, void *all)
{
    return core->allgather_bytes(comm, own, bytes, all);
}

int epx_comm_bcast(struct epx_comm *comm, void *data, int bytes)
{
    return core->bcast(comm, data, bytes);
}

void epx_comm_drain(struct epx_comm *comm)
{
    core->drain(comm);
}

void epx_comm_finish(struct epx_comm *comm, const char *message)
{
    core->finish(comm, message);
}

void epx_comm_give_up(struct epx_comm *comm, const char *message)
{
    core->give_up(comm, message);
}

void epx_comm_describe_silence(const struct epx_comm *comm, const char *operation, int culprit,
                               char *message)
{
    core->describe_silence(comm, operation, culprit, message);
}

int epx_mpi_liveness_create(struct epx_comm *comm, struct epx_mpi_liveness **liveness)
{
    return core->liveness_create(comm, liveness);
}

void epx_mpi_liveness_free(struct epx_mpi_liveness *liveness)
{
    core->liveness_free(liveness);
}

int epx_mpi_liveness_beat(struct epx_mpi_liveness *liveness, uint64_t position, char *message)
{
    return core->liveness_beat(liveness, position, message);
}

void epx_mpi_liveness_announce(struct epx_mpi_liveness *liveness, const char *message)
{
    core->liveness_announce(liveness, message);
}

int epx_mpi_liveness_blame(struct epx_mpi_liveness *liveness, int first, const char *suspects,
                           char *message)
{
    return core->liveness_blame(liveness, first, suspects, message);
}

const char *epx_verb_name(enum epx_verb verb)
{
    return core->verb_name(verb);
}

int64_t epx_route_worst_capacity(const EPX_Route_attr *attr, int num_ranks, int num_local)
{
    return core->worst_capacity(attr, num_ranks, num_local);
}

struct epx_ready epx_ready_of(const struct epx_request *request)
{
    return core->ready_of(request);
}

const struct epx_transport_ops *epx_transport_host_messages(void)
{
    return core->host_messages();
}

const struct epx_module *epx_cuda_module(const struct epx_core *given);

const struct epx_module *epx_cuda_module(const struct epx_core *given)
{
    static const struct epx_module module = {
        .version = EPX_MODULE_VERSION,
        .transports = epx_transports,
        .direct = &epx_ground_device_direct,
        .staged = &epx_ground_device_staged,
    };

    core = given;
    return &module;
}
