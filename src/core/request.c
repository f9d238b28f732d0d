/* SPDX-License-Identifier: BSD-3-Clause */
/* request.c - one nonblocking operation: its arguments, its place in the queue, its outcome. */
#include "core/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/route.h"

enum { REQUESTS_KEPT = 256 };

static struct epx_request *unused; /* under the lock */
static int num_unused;
static struct epx_request *live;

const char *epx_verb_name(enum epx_verb verb)
{
    static const char *const names[] = {
        [EPX_VERB_ROUTE_TOKENS] = "EPX_Route_tokens",
        [EPX_VERB_ROUTE_DISPATCH] = "EPX_Route_dispatch",
        [EPX_VERB_ROUTE_DISPATCH_FIELDS] = "EPX_Route_dispatch_fields",
        [EPX_VERB_DISPATCH] = "EPX_Dispatch",
        [EPX_VERB_DISPATCH_FIELDS] = "EPX_Dispatch_fields",
        [EPX_VERB_COMBINE] = "EPX_Combine",
        [EPX_VERB_DISPATCH_BACKWARD] = "EPX_Dispatch_backward",
        [EPX_VERB_COMBINE_BACKWARD] = "EPX_Combine_backward",
        [EPX_VERB_ALLTOALLV] = "EPX_Alltoallv",
        [EPX_VERB_NEIGHBOR_ALLTOALLV] = "EPX_Neighbor_alltoallv",
    };

    return names[verb];
}

static struct epx_request *take_unused(void)
{
    struct epx_request *request = unused;

    if (request) {
        unused = request->next;
        num_unused--;
    }
    return request ? request : malloc(sizeof(*request));
}

static void link_live(struct epx_request *request)
{
    request->live_next = live;
    request->live_link = &live;
    if (live)
        live->live_link = &request->live_next;
    live = request;
}

/* Does nothing to a request that the user does not hold. */
static void unlink_live(struct epx_request *request)
{
    if (!request->live_link)
        return;
    *request->live_link = request->live_next;
    if (request->live_next)
        request->live_next->live_link = request->live_link;
    request->live_link = NULL;
}

/* Zeroes a request from one of its members on, and lists it. */
static void begin(struct epx_request *request, size_t from)
{
    memset((char *)request + from, 0, offsetof(struct epx_request, message) - from);
    request->message[0] = '\0';
    request->waiting_for = -1;
    link_live(request);
}

/* A request without a handle. */
static struct epx_request *make(struct epx_comm *comm, struct epx_route *route)
{
    struct epx_request *request = take_unused();

    if (!request)
        return NULL;
    begin(request, 0);
    request->comm = comm;
    request->route = route;
    epx_comm_retain(comm);
    if (route)
        epx_route_retain(route);
    return request;
}

struct epx_request *epx_request_create(struct epx_comm *comm, struct epx_route *route)
{
    struct epx_request *request;

    epx_lock();
    request = make(comm, route);
    if (request)
        epx_handle_add(&request->handle, EPX_HANDLE_REQUEST);
    epx_unlock();
    return request;
}

static struct epx_request *make_operation(struct epx_request *persistent)
{
    struct epx_request *operation = make(persistent->comm, NULL);

    if (!operation)
        return NULL;
    epx_request_set_call(operation, &persistent->call);
    operation->progress = persistent->progress;
    operation->lacks = persistent->lacks;
    operation->launch = persistent->launch;
    operation->ended = persistent->ended;
    operation->starter = persistent;
    return operation;
}

struct epx_request *epx_request_again(struct epx_request *persistent)
{
    struct epx_request *operation = persistent->spare;

    if (!operation)
        return make_operation(persistent);
    persistent->spare = NULL;
    begin(operation, offsetof(struct epx_request, place));
    if (!operation->kept) /* else its call stays as its first run has completed it */
        operation->call = persistent->call;
    return operation;
}

void epx_request_done(struct epx_request *request)
{
    if (!request->starter) {
        epx_request_free(request);
        return;
    }
    unlink_live(request);
    request->starter->spare = request;
}

int epx_request_routes(const struct epx_route *route)
{
    const struct epx_request *request = route->comm->first;

    while (request && (request->route != route || !epx_verb_routes(request->call.verb)))
        request = request->next;
    return request != NULL;
}

void epx_request_set_call(struct epx_request *request, const struct epx_call *call)
{
    request->call = *call;
    if (call->graph)
        epx_graph_retain(call->graph);
    epx_request_keep(request, call->kept);
}

void epx_request_keep(struct epx_request *request, struct epx_kept *kept)
{
    epx_lock();
    request->kept = kept;
    if (kept)
        kept->references++;
    epx_unlock();
}

static void release_kept(struct epx_kept *kept)
{
    if (kept && --kept->references == 0 && kept->free)
        kept->free(kept);
}

/* Whether nobody else holds the communicator or the graph of a request. */
static int is_last_holder(const struct epx_comm *comm, const struct epx_graph *graph)
{
    return comm->references == 1 || (graph && !graph->everyone && graph->references == 1);
}

void epx_request_free(struct epx_request *request)
{
    struct epx_graph *graph;
    struct epx_comm *comm;
    int is_last;

    if (!request)
        return;
    epx_request_free(request->spare);
    graph = request->call.graph;
    comm = request->comm;
    epx_lock();
    is_last = is_last_holder(comm, graph);
    if (!is_last) { /* then they are not freed, which may wait for other threads */
        epx_graph_release(graph);
        epx_comm_release(comm);
    }
    release_kept(request->kept);
    epx_handle_remove(&request->handle);
    unlink_live(request);
    if (num_unused < REQUESTS_KEPT) {
        request->next = unused;
        unused = request;
        num_unused++;
        request = NULL;
    }
    epx_unlock();
    if (is_last) {
        epx_graph_release(graph);
        epx_comm_release(comm);
    }
    free(request);
}

int epx_request_count(const struct epx_comm *comm, int persistent)
{
    int num = 0;

    epx_lock();
    for (const struct epx_request *request = live; request; request = request->live_next)
        num += request->comm == comm && request->persistent == persistent;
    epx_unlock();
    return num;
}

void epx_request_free_all_by_mpi(void)
{
    struct epx_request *next;

    for (struct epx_request *request = live; request; request = next) {
        next = request->live_next;
        if (request->comm->by_mpi)
            epx_request_free(request);
    }
    while (unused) {
        struct epx_request *request = unused;

        unused = request->next;
        free(request);
    }
    num_unused = 0;
}

void epx_request_abandon(struct epx_request *request)
{
    epx_route_release(request->route);
    epx_request_free(request);
}

int epx_request_queue_rest(struct epx_request *request)
{
    return request && request->queue_rest ? request->queue_rest(request) : EPX_SUCCESS;
}

static void trace_end(const struct epx_request *request)
{
    struct epx_comm *comm = request->comm;
    const struct epx_traced_operation operation = {
        .name = epx_verb_name(request->call.verb),
        .error = request->error,
        .epoch = request->epoch,
        .called_ns = request->called_ns,
        .agreed_ns = request->agreed_ns,
    };

    if (comm->traced.number)
        epx_trace_end(&comm->traced, &operation, request->launch ? comm->waits.told_ns : NULL);
}

void epx_request_complete(struct epx_request *request, int error)
{
    struct epx_comm *comm = request->comm;

    comm->first = request->next;
    if (!comm->first)
        comm->last = NULL;
    request->next = NULL;
    request->error = error;
    if (error != EPX_SUCCESS) {
        snprintf(request->message, sizeof(request->message), "%s", epx_status_message());
        epx_comm_note_error(comm, error, request->message);
    }
    trace_end(request);
    epx_route_release(request->route); /* a freed route goes with its last operation */
    request->route = NULL;
    request->complete = 1;
    if (!request->detached)
        return;
    if (error != EPX_SUCCESS)
        snprintf(comm->message, sizeof(comm->message), "%s", request->message);
    epx_request_free(request);
}
