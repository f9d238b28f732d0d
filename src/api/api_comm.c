/* SPDX-License-Identifier: BSD-3-Clause */
/* api_comm.c - EPX_Comm_* of a communicator that is there, EPX_Alloc_mem, EPX_Free_mem. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/profile.h"
#include "base/jitter.h"
#include "coll/attach.h"
#include "core/agree.h"
#include "core/progress.h"
#include "transport/module.h"

EPX_PROFILED(Comm_free)
EPX_PROFILED(Comm_rank)
EPX_PROFILED(Comm_size)
EPX_PROFILED(Comm_get_info)
EPX_PROFILED(Comm_get_hint)
EPX_PROFILED(Comm_set_errhandler)
EPX_PROFILED(Comm_get_async_error)
EPX_PROFILED(Comm_get_error_message)
EPX_PROFILED(Comm_get_stats)
EPX_PROFILED(Alloc_mem)
EPX_PROFILED(Free_mem)

static int check_leftovers(struct epx_comm *comm)
{
    int64_t here = comm->routes || comm->graphs || comm->segments, anywhere;
    int rc = EPX_SUCCESS;

    anywhere = here;
    if (!comm->finished)
        rc = epx_comm_max(comm, here, &anywhere);
    EPX_FAIL_IF(here, EPX_ERR_PENDING, "free the communicator's %s first",
                comm->routes   ? "routes"
                : comm->graphs ? "graphs"
                               : "memory");
    EPX_FAIL_IF(anywhere, EPX_ERR_PENDING, "another rank has routes, graphs or memory left");
    return rc;
}

static void warn_of_requests(const struct epx_comm *comm)
{
    const int requests = epx_request_count(comm, 0), persistent = epx_request_count(comm, 1);

    if (requests)
        EPX_LOG_WARN("EPX_Comm_free: requests that were never waited for: %d", requests);
    if (persistent)
        EPX_LOG_WARN("EPX_Comm_free: persistent requests that were not freed: %d", persistent);
}

/*
 * EPX_Comm_free - free a communicator.
 *
 * Collective, blocking; local after EPX_ERR_TIMEOUT. Completes the operations in flight; their
 * requests can still be waited for.
 * In/out: comm, set to EPX_COMM_NULL; kept with EPX_ERR_PENDING.
 * Errors: EPX_ERR_PENDING on all ranks if a rank has routes or memory left; EPX_ERR_COMM;
 * EPX_ERR_ARG for a NULL pointer; EPX_ERR_TIMEOUT or EPX_ERR_MPI, it is freed then.
 */
int EPX_Comm_free(EPX_Comm *comm)
{
    struct epx_comm *freed;
    int rc;

    EPX_API_ENTER();
    EPX_API_FAIL_IF(!comm, EPX_ERR_ARG, "comm is NULL");
    EPX_TRY(epx_api_comm(*comm));
    freed = *comm;
    epx_comm_drain(freed);
    rc = check_leftovers(freed);
    epx_api_return(freed, rc);
    if (rc == EPX_ERR_PENDING)
        return rc;
    warn_of_requests(freed);
    *comm = EPX_COMM_NULL;
    epx_api_free_comm(freed);
    return rc;
}

/*
 * EPX_Comm_rank - get this process's rank in the communicator.
 *
 * Local. Input: comm. Output: rank. Errors: EPX_ERR_COMM; EPX_ERR_ARG if rank is NULL.
 */
int EPX_Comm_rank(EPX_Comm comm, int *rank)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    if (!rank)
        return epx_api_return(comm, epx_fail(EPX_ERR_ARG, "rank is NULL"));
    *rank = comm->rank;
    return EPX_SUCCESS;
}

/*
 * EPX_Comm_size - get the number of ranks.
 *
 * Local. Input: comm. Output: size. Errors: EPX_ERR_COMM; EPX_ERR_ARG if size is NULL.
 */
int EPX_Comm_size(EPX_Comm comm, int *size)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    if (!size)
        return epx_api_return(comm, epx_fail(EPX_ERR_ARG, "size is NULL"));
    *size = comm->size;
    return EPX_SUCCESS;
}

static void format_hint(const struct epx_comm *comm, const struct epx_param *param,
                        char value[EPX_MAX_HINT_STRING])
{
    if (param->offset == offsetof(struct epx_params, transport))
        snprintf(value, EPX_MAX_HINT_STRING, "%s", epx_transport_name(comm));
    else
        epx_param_format(param, &comm->params, value, EPX_MAX_HINT_STRING);
}

static int get_info(const struct epx_comm *comm, MPI_Info *info_used)
{
    const struct epx_mpi *mpi = epx_api_mpi();
    char value[EPX_MAX_HINT_STRING];
    MPI_Info info;
    int rc = EPX_SUCCESS;

    EPX_FAIL_IF(!info_used, EPX_ERR_ARG, "info_used is NULL");
    EPX_FAIL_IF(!mpi, EPX_ERR_NOT_INITIALIZED, "without MPI there are no info objects");
    EPX_TRY(mpi->create_info(&info));
    for (const struct epx_param *p = epx_param_table; p->name && rc == EPX_SUCCESS; p++) {
        format_hint(comm, p, value);
        rc = mpi->set_info(info, p->name, value);
    }
    if (rc != EPX_SUCCESS) {
        mpi->free_info(&info);
        return rc;
    }
    *info_used = info;
    return EPX_SUCCESS;
}

/*
 * EPX_Comm_get_info - get the hints in force, and what auto chose.
 *
 * Local. Input: comm. Output: info_used, a new object that the caller frees.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG if info_used is NULL; EPX_ERR_NOT_INITIALIZED without MPI.
 * See also: EPX_Comm_get_hint.
 */
int EPX_Comm_get_info(EPX_Comm comm, MPI_Info *info_used)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    return epx_api_return(comm, get_info(comm, info_used));
}

/*
 * EPX_Comm_get_hint - get one hint in force, or what auto chose for it; works without MPI.
 *
 * Local. Input: comm; key, the name of a hint. Output: value, of EPX_MAX_HINT_STRING bytes, empty
 * if key is no hint; resultlen, its length.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG for a NULL argument.
 * See also: EPX_Comm_get_info.
 */
int EPX_Comm_get_hint(EPX_Comm comm, const char *key, char *value, int *resultlen)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    if (!key || !value || !resultlen)
        return epx_api_return(comm, epx_fail(EPX_ERR_ARG, "an argument is NULL"));
    value[0] = '\0';
    for (const struct epx_param *p = epx_param_table; p->name; p++)
        if (strcmp(p->name, key) == 0)
            format_hint(comm, p, value);
    *resultlen = (int)strlen(value);
    return EPX_SUCCESS;
}

static int set_errhandler(struct epx_comm *comm, MPI_Errhandler errhandler)
{
    EPX_FAIL_IF(!comm->by_mpi, EPX_ERR_NOT_INITIALIZED,
                "a communicator that MPI did not make has no error handler: errors are returned");
    return epx_mpi_open()->set_errhandler(comm, errhandler);
}

/*
 * EPX_Comm_set_errhandler - set the error handler of the communicator.
 *
 * Local. The handler is called with the library's duplicate of the MPI communicator and a code
 * that MPI_Error_string knows.
 * Input: comm; errhandler, one for communicators.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG for MPI_ERRHANDLER_NULL; EPX_ERR_NOT_INITIALIZED for a
 * communicator of EPX_Comm_create_from.
 */
int EPX_Comm_set_errhandler(EPX_Comm comm, MPI_Errhandler errhandler)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    return epx_api_return(comm, set_errhandler(comm, errhandler));
}

/* Learns what the GPU has to tell without a request: errors of replayed graphs, the end. */
static void listen_to_device(struct epx_comm *comm)
{
    int error;

    epx_progress_comm(comm);
    if (comm->async_error)
        return;
    error = epx_transport_device_ops(comm)->take_replay_error(comm->transport->device);
    if (error == EPX_SUCCESS)
        return;
    epx_comm_note_error(comm, error, epx_status_message());
}

/*
 * EPX_Comm_get_async_error - get the first error of an operation that was not asked for yet.
 *
 * Local; never blocks, never calls the error handler. The communicator's message is that of the
 * error afterwards.
 * Input: comm. Output: errorcode, EPX_SUCCESS if there is none; the error is cleared.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG if errorcode is NULL.
 */
int EPX_Comm_get_async_error(EPX_Comm comm, int *errorcode)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    if (!errorcode)
        return epx_api_return(comm, epx_fail(EPX_ERR_ARG, "errorcode is NULL"));
    epx_lock();
    if (epx_transport_device_ops(comm))
        listen_to_device(comm);
    *errorcode = epx_comm_take_error(comm);
    epx_unlock();
    return EPX_SUCCESS;
}

/*
 * EPX_Comm_get_error_message - get the last error of the communicator, with its values.
 *
 * Local. Input: comm. Output: string, of EPX_MAX_ERROR_STRING bytes, empty before the first
 * error; resultlen, its length.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG for a NULL argument.
 * See also: EPX_Get_error_message.
 */
int EPX_Comm_get_error_message(EPX_Comm comm, char *string, int *resultlen)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    if (!string || !resultlen)
        return epx_api_return(comm, epx_fail(EPX_ERR_ARG, "an argument is NULL"));
    epx_lock();
    epx_status_copy(string, resultlen, EPX_MAX_ERROR_STRING, comm->message);
    epx_unlock();
    return EPX_SUCCESS;
}

/*
 * EPX_Comm_get_stats - get the counters of the communicator.
 *
 * Local. On device memory it waits for a copy from the GPU.
 * Input: comm; stats->size, sizeof(EPX_Stats). Output: stats.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG if stats is NULL or too small.
 */
int EPX_Comm_get_stats(EPX_Comm comm, EPX_Stats *stats)
{
    const struct epx_device_ops *ops;
    EPX_Stats counted;
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    epx_lock();
    counted = comm->stats;
    ops = epx_transport_device_ops(comm);
    if (ops)
        ops->add_stats(comm->transport->device, &counted);
    rc = epx_stats_copy(&counted, stats);
    epx_unlock();
    return epx_api_return(comm, rc);
}

/* Collective, agreed: private memory instead of a window, for which there is no room. */
static int allocate_private(struct epx_comm *comm, size_t bytes, struct epx_segment *segment)
{
    char why[EPX_MAX_ERROR_STRING];
    int rc = EPX_SUCCESS;

    snprintf(why, sizeof(why), "%s", epx_status_message());
    segment->is_spare = 1;
    segment->window = epx_window_private(comm->size, comm->rank, bytes);
    if (!segment->window)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for %zu bytes", bytes);
    rc = epx_comm_agree(comm, rc);
    if (rc != EPX_SUCCESS) {
        epx_window_free(segment->window);
        return rc;
    }
    epx_transport_tell(comm, &comm->told_memory,
                       "private memory, into which others cannot store, is used instead of shared "
                       "memory",
                       why);
    return EPX_SUCCESS;
}

/* Makes a window, or private memory if auto chose the transport and there is no room for a
 * window. */
static int allocate_window(struct epx_comm *comm, size_t bytes, struct epx_segment *segment)
{
    struct epx_transport *transport = comm->transport;
    int may_be_private = !comm->params.transport && transport->direct, rc;

    if (!may_be_private) {
        EPX_TRY(epx_transport_window_create(transport, bytes, &segment->window));
        segment->reachable = !transport->ops->messages && !transport->ops->exchanges;
        return EPX_SUCCESS;
    }
    epx_attempt_begin();
    rc = epx_transport_window_create(transport, bytes, &segment->window);
    epx_attempt_end(rc, rc == EPX_ERR_NO_MEM);
    segment->reachable = rc == EPX_SUCCESS;
    return rc == EPX_ERR_NO_MEM ? allocate_private(comm, bytes, segment) : rc;
}

static int alloc_mem(struct epx_comm *comm, MPI_Aint bytes, void *baseptr)
{
    struct epx_segment *segment;
    int rc;

    EPX_FAIL_IF(!baseptr, EPX_ERR_ARG, "baseptr is NULL");
    EPX_FAIL_IF(bytes < 0, EPX_ERR_COUNT, "bytes is %lld", (long long)bytes);
    segment = epx_memory_zeroed(1, sizeof(*segment));
    rc = epx_comm_agree(comm, segment ? EPX_SUCCESS
                                      : epx_fail(EPX_ERR_NO_MEM, "no memory for a segment"));
    if (rc == EPX_SUCCESS)
        rc = allocate_window(comm, (size_t)bytes, segment);
    if (rc != EPX_SUCCESS) {
        free(segment);
        return rc;
    }
    if (!epx_transport_device_ops(comm))
        epx_poison(segment->window->own, (size_t)bytes);
    epx_lock();
    segment->bytes = (size_t)bytes;
    segment->id = comm->next_segment++;
    segment->next = comm->segments;
    comm->segments = segment;
    epx_unlock();
    *(void **)baseptr = segment->window->own;
    return EPX_SUCCESS;
}

/*
 * EPX_Alloc_mem - allocate memory that the other ranks can store into.
 *
 * Collective, blocking. Rows dispatched into it need no stage. On a communicator whose transport
 * auto chose it is private memory where the machine is short of shared memory.
 * Input: bytes, may differ by rank or be 0; comm. Output: baseptr, the address of a pointer to
 * at least bytes bytes, aligned to 4096, never NULL; free it with EPX_Free_mem.
 * Errors: EPX_ERR_COMM, EPX_ERR_ARG (baseptr NULL), EPX_ERR_COUNT (bytes < 0), EPX_ERR_NO_MEM and
 * EPX_ERR_TIMEOUT on all ranks.
 */
int EPX_Alloc_mem(MPI_Aint bytes, EPX_Comm comm, void *baseptr)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    return epx_api_return(comm, alloc_mem(comm, bytes, baseptr));
}

/* Checks that all ranks name the same allocation. First completes what is in flight, which may use
 * it. */
static int agree_to_free(struct epx_comm *comm, const struct epx_segment *segment)
{
    epx_comm_drain(comm);
    if (comm->finished)
        return EPX_SUCCESS;
    return epx_comm_same(comm, "the allocation to be freed", segment->id);
}

static int free_mem(struct epx_comm *comm, void *base)
{
    const struct epx_transport_ops *ops = comm->transport->ops;
    struct epx_segment **link = &comm->segments, *segment;
    int rc;

    while (*link && (*link)->window->own != base)
        link = &(*link)->next;
    EPX_FAIL_IF(!*link, EPX_ERR_BUFFER, "base %p is not from EPX_Alloc_mem on this communicator",
                base);
    rc = agree_to_free(comm, *link);
    if (rc != EPX_SUCCESS && !comm->finished)
        return rc;
    epx_lock();
    segment = *link;
    *link = segment->next;
    epx_unlock();
    epx_api_free_segment(comm, segment);
    if (ops->reclaim && !epx_comm_keeps_memory(comm))
        ops->reclaim(comm->transport->state);
    return rc;
}

/*
 * EPX_Free_mem - free memory of EPX_Alloc_mem.
 *
 * Collective, blocking; local after EPX_ERR_TIMEOUT. Completes the communicator's operations in
 * flight first; their requests can still be waited for.
 * Input: base, what EPX_Alloc_mem gave; comm.
 * Errors: EPX_ERR_COMM; EPX_ERR_BUFFER for another address; EPX_ERR_ARG on all ranks if they
 * name different allocations, nothing is freed then; EPX_ERR_TIMEOUT or EPX_ERR_MPI, it is freed
 * then.
 */
int EPX_Free_mem(void *base, EPX_Comm comm)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    return epx_api_return(comm, free_mem(comm, base));
}
