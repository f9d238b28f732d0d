/* SPDX-License-Identifier: BSD-3-Clause */
/* api.c - what every public function does first and last, and what MPI_Finalize does with
 * leftovers. */
#include "api/api.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/pause.h"
#include "coll/attach.h"
#include "core/health/comm_end.h"
#include "core/health/survivors.h"
#include "core/progress.h"
#include "transport/module.h"

enum { LEAVING_MS = 10000 };

static int is_set_up; /* under the lock */
/* The generation of forks (handle.h) that has found MPI working: its children may not call that. */
static atomic_int generation_of_mpi = -1;
/* MPI where it was asked and works, else NULL; MPI_Finalize, which has begun to end it, takes that
 * back first. */
static const struct epx_mpi *_Atomic working_mpi;

static _Thread_local const struct epx_mpi *mpi_here; /* as the last enter of this thread found it */

const struct epx_mpi *epx_api_mpi(void)
{
    return mpi_here;
}

/* Asks whether MPI works. */
static int check_mpi(const struct epx_mpi **mpi)
{
    const struct epx_mpi *opened = epx_mpi_open();

    if (!opened) {
        char why[EPX_MAX_ERROR_STRING];

        snprintf(why, sizeof(why), "%s", epx_status_message());
        return epx_fail(EPX_ERR_NOT_INITIALIZED, "MPI is not here: %s", why);
    }
    EPX_TRY(opened->check());
    generation_of_mpi = epx_handle_generation();
    epx_watch_forks();
    *mpi = opened;
    return EPX_SUCCESS;
}

int epx_api_enter_mpi(const char *function)
{
    const struct epx_mpi *mpi = working_mpi;

    epx_status_enter(function);
    mpi_here = NULL;
    EPX_FAIL_IF(generation_of_mpi >= 0 && generation_of_mpi != epx_handle_generation(),
                EPX_ERR_NOT_INITIALIZED, "this process was forked off: MPI is its parent's");
    if (!mpi)
        return check_mpi(&mpi_here);
    mpi_here = mpi;
    return EPX_SUCCESS;
}

/* A child of fork that has not found MPI itself needs none: all that it can name is without. */
int epx_api_enter(const char *function)
{
    const int generation = epx_handle_generation(), has_mpi = generation_of_mpi == generation;

    if (!epx_comm_without_mpi() && (has_mpi || generation == 0))
        return epx_api_enter_mpi(function);
    epx_status_enter(function);
    mpi_here = has_mpi && is_set_up && epx_mpi_open()->works() ? epx_mpi_open() : NULL;
    return EPX_SUCCESS;
}

int epx_api_comm(const struct epx_comm *comm)
{
    return epx_api_return(NULL, epx_handle_check(comm, EPX_HANDLE_COMM));
}

int epx_api_graph(const struct epx_graph *graph)
{
    return epx_api_return(NULL, epx_handle_check(graph, EPX_HANDLE_GRAPH));
}

int epx_api_route(const struct epx_route *route)
{
    return epx_api_return(NULL, epx_handle_check(route, EPX_HANDLE_ROUTE));
}

int epx_check_request_at(const EPX_Request *request, struct epx_comm **comm)
{
    *comm = NULL;
    EPX_FAIL_IF(!request, EPX_ERR_REQUEST, "request is NULL");
    if (*request == EPX_REQUEST_NULL)
        return EPX_SUCCESS;
    EPX_TRY(epx_handle_check(*request, EPX_HANDLE_REQUEST));
    *comm = (*request)->comm;
    return EPX_SUCCESS;
}

/* The first request that stands in the list for the second time; its place before goes to *before.
 * n = there is none. */
static int find_repeated(int n, const EPX_Request *requests, int *before)
{
    int repeated = 0;

    for (; repeated < n && (!requests[repeated] || !requests[repeated]->named); repeated++)
        if (requests[repeated])
            requests[repeated]->named = repeated + 1;
    *before = repeated < n ? requests[repeated]->named - 1 : n;
    for (int i = 0; i < repeated; i++)
        if (requests[i])
            requests[i]->named = 0;
    return repeated;
}

int epx_check_request_list(int n, const EPX_Request *requests, struct epx_comm **comm)
{
    int repeated, before;

    *comm = NULL;
    EPX_FAIL_IF(n < 0, EPX_ERR_COUNT, "n is %d", n);
    EPX_FAIL_IF(n && !requests, EPX_ERR_ARG, "requests is NULL");
    for (int i = 0; i < n; i++)
        EPX_TRY(epx_check_request_at(&requests[i], comm));
    *comm = NULL;
    repeated = find_repeated(n, requests, &before);
    EPX_FAIL_IF(repeated < n, EPX_ERR_REQUEST, "requests[%d] and requests[%d] are the same", before,
                repeated);
    return EPX_SUCCESS;
}

int epx_api_return_to(const MPI_Comm *comm, int error)
{
    const struct epx_mpi *mpi;

    if (error == EPX_SUCCESS)
        return error;
    mpi = epx_api_mpi();
    if (!mpi)
        return error;
    epx_api_setup();
    mpi->call_errhandler(comm, error);
    return error;
}

int epx_api_return(struct epx_comm *comm, int error)
{
    if (error == EPX_SUCCESS)
        return error;
    if (!comm)
        return epx_api_return_to(NULL, error);
    if (!epx_handle_is(comm, EPX_HANDLE_COMM))
        return error;
    epx_lock();
    snprintf(comm->message, sizeof(comm->message), "%s", epx_status_message());
    epx_unlock();
    return comm->by_mpi ? epx_api_return_to(&comm->user, error) : error;
}

void epx_api_free_segment(struct epx_comm *comm, struct epx_segment *segment)
{
    struct epx_transport *transport = comm->transport;

    if (segment->is_spare && !epx_comm_keeps_memory(comm))
        epx_window_free(segment->window);
    else if (transport)
        epx_transport_window_free(transport, segment->window);
    free(segment);
}

void epx_api_free_comm(struct epx_comm *comm)
{
    epx_handle_remove(&comm->handle);
    epx_comm_stop_thread(comm);
    epx_comm_unlist(comm);
    while (comm->segments) {
        struct epx_segment *segment = comm->segments;

        comm->segments = segment->next;
        epx_api_free_segment(comm, segment);
    }
    epx_survivors_free(comm->survivors);
    comm->survivors = NULL;
    if (epx_comm_keeps_memory(comm))
        epx_transport_retire(comm);
    else
        epx_transport_detach(comm);
    epx_comm_close(comm);
}

/*
 * Gives the GPU time to complete what is in flight on device memory, which it may do without this
 * host; the peers then miss nothing. Windows there are given back by all ranks together, which is
 * not possible any more: so the communicator counts as finished.
 */
static void leave_device(struct epx_comm *comm)
{
    const int64_t end = epx_deadline_in(LEAVING_MS);
    int idle = 0;

    epx_request_queue_rest(comm->last);
    while (comm->first && !epx_deadline_is_over(end)) {
        epx_progress();
        epx_unlock();
        epx_pause(idle++);
        epx_lock();
    }
    if (!comm->first && !comm->finished)
        comm->finished = EPX_ERR_TIMEOUT;
}

/* Called by MPI_Finalize while MPI still works: frees what was made by MPI. */
static void free_leftovers(void)
{
    struct epx_comm *comm;

    working_mpi = NULL;
    epx_lock();
    while ((comm = epx_comm_any_by_mpi())) {
        EPX_LOG_WARN("a communicator of %d ranks was not freed before MPI_Finalize", comm->size);
        if (epx_transport_device_ops(comm))
            leave_device(comm);
        if (comm->first) {
            epx_comm_give_up(comm, "MPI_Finalize with operations in flight");
            epx_unlock();
            epx_comm_drain(comm);
            epx_lock();
        }
        while (comm->routes) {
            struct epx_route *route = comm->routes;

            epx_route_unlist(route);
            epx_route_release(route);
        }
        while (comm->graphs) {
            struct epx_graph *graph = comm->graphs;

            epx_graph_unlist(graph);
            epx_graph_release(graph);
        }
        epx_comm_unlist(comm);
        epx_unlock();
        epx_api_free_comm(comm);
        epx_lock();
    }
    epx_unlock();
    epx_request_free_all_by_mpi();
    epx_pause_progresses(NULL);
}

int epx_api_setup(void)
{
    int rc = EPX_SUCCESS, rank;

    epx_lock();
    if (!is_set_up) {
        rc = epx_mpi_open()->set_up(free_leftovers, &rank);
        is_set_up = rc == EPX_SUCCESS;
        if (is_set_up) {
            working_mpi = epx_mpi_open();
            epx_log_set_rank(rank);
            epx_pause_progresses(epx_mpi_open()->progress);
        }
    }
    epx_unlock();
    return rc;
}

void epx_api_name_rank(int rank)
{
    epx_lock();
    if (!is_set_up)
        epx_log_set_rank(rank);
    epx_unlock();
}

static int check_buffer(const struct epx_buffer *buffer)
{
    EPX_FAIL_IF(buffer->address == MPI_IN_PLACE, EPX_ERR_BUFFER, "%s is MPI_IN_PLACE",
                buffer->name);
    EPX_FAIL_IF(!buffer->address && buffer->required && buffer->rows && buffer->row_bytes,
                EPX_ERR_BUFFER, "%s is NULL, want room for %lld rows of %lld bytes", buffer->name,
                (long long)buffer->rows, (long long)buffer->row_bytes);
    EPX_FAIL_IF((uintptr_t)buffer->address & (uintptr_t)(buffer->alignment - 1), EPX_ERR_BUFFER,
                "%s is at %p, want a multiple of its element's %d bytes", buffer->name,
                buffer->address, buffer->alignment);
    return EPX_SUCCESS;
}

static int overlap(const struct epx_buffer *a, const struct epx_buffer *b)
{
    if (!a->written && !b->written)
        return 0;
    return epx_memory_overlap(a->address, (uint64_t)(a->rows * a->row_bytes), b->address,
                              (uint64_t)(b->rows * b->row_bytes));
}

/* Whether a buffer, or the address of an empty one, is not in memory that EPX_Alloc_mem allocated
 * on the communicator. */
static int is_foreign(const struct epx_comm *comm, const struct epx_device_buffer *buffer)
{
    const size_t bytes = buffer->bytes > 0 ? (size_t)buffer->bytes : 1;
    int64_t offset;

    return buffer->address && !epx_segment_find(comm->segments, buffer->address, bytes, &offset);
}

/* Lists the buffers whose memory space is not known; returns how many these are. */
static int list_foreign(const struct epx_comm *comm, const struct epx_buffer *buffers, int num,
                        struct epx_device_buffer *foreign)
{
    int found = 0;

    epx_lock(); /* another thread may allocate or free */
    for (int i = 0; i < num; i++) {
        const struct epx_device_buffer buffer = {buffers[i].name, buffers[i].address,
                                                 buffers[i].rows * buffers[i].row_bytes,
                                                 buffers[i].written};

        if (is_foreign(comm, &buffer))
            foreign[found++] = buffer;
    }
    epx_unlock();
    return found;
}

/* Checks that buffers are in the memory space of the communicator, on devices all their bytes. */
static int check_spaces(const struct epx_comm *comm, const struct epx_buffer *buffers, int num)
{
    const struct epx_device_ops *ops = epx_transport_device_ops(comm);
    struct epx_device_buffer foreign[EPX_MOST_BUFFERS];
    int found;

    if (!ops && !epx_module_has_driver()) /* then no memory is that of a GPU */
        return EPX_SUCCESS;
    found = list_foreign(comm, buffers, num, foreign);
    if (ops)
        return found ? ops->check_buffers(comm->transport->device, foreign, found) : EPX_SUCCESS;
    for (int i = 0; i < found; i++)
        EPX_FAIL_IF(epx_module_is_device_memory(foreign[i].address), EPX_ERR_BUFFER,
                    "%s is in the memory of a GPU, the communicator's is that of the host",
                    foreign[i].name);
    return EPX_SUCCESS;
}

int epx_check_buffers(const struct epx_comm *comm, const struct epx_buffer *buffers, int num)
{
    int64_t bytes;

    for (int i = 0; i < num; i++) {
        EPX_TRY(check_buffer(&buffers[i]));
        EPX_FAIL_IF(__builtin_mul_overflow(buffers[i].rows, buffers[i].row_bytes, &bytes),
                    EPX_ERR_COUNT, "%s of %lld rows of %lld bytes", buffers[i].name,
                    (long long)buffers[i].rows, (long long)buffers[i].row_bytes);
    }
    EPX_TRY(check_spaces(comm, buffers, num));
    for (int i = 0; i < num; i++)
        for (int j = 0; j < i; j++)
            EPX_FAIL_IF(overlap(&buffers[i], &buffers[j]), EPX_ERR_BUFFER, "%s and %s overlap",
                        buffers[j].name, buffers[i].name);
    return EPX_SUCCESS;
}

int epx_check_tokens(const struct epx_route *route, int num_tokens, const EPX_Request *request)
{
    EPX_FAIL_IF(!request, EPX_ERR_ARG, "request is NULL");
    EPX_FAIL_IF(num_tokens < 0 || num_tokens > route->attr.max_tokens, EPX_ERR_COUNT,
                "num_tokens is %d, want 0 to max_tokens, %d", num_tokens, route->attr.max_tokens);
    return EPX_SUCCESS;
}

struct epx_buffer epx_ids_buffer(const struct epx_route *route, const void *expert_ids,
                                 int num_tokens)
{
    int bytes = route->attr.index_bits / 8;
    struct epx_buffer ids = {
        "expert_ids", expert_ids, num_tokens, (int64_t)route->attr.top_k * bytes, bytes, 0, 1};

    return ids;
}

void epx_note_routing(struct epx_route *route, const struct epx_call *call)
{
    route->routed = 1;
    route->num_tokens = call->num_tokens;
    route->routed_capacity = call->recv_capacity;
}
