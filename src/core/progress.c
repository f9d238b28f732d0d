/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.c - moves the queues on. */
#include "core/progress.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pause.h"
#include "core/health/comm_end.h"
#include "core/health/patience.h"
#include "core/route.h"

enum { IDLE_A_PASS = 8, NAP_NS = 50000, WATCHING_NAP_NS = 1000000, GRACE_MS = 1000 };

static void spoil(struct epx_route *route, int64_t id, int error)
{
    if (!route || route->id != id)
        return;
    route->routed = 1;
    route->error = error;
    snprintf(route->message, sizeof(route->message), "%s", epx_status_message());
}

void epx_route_spoil(struct epx_comm *comm, int64_t id, int error)
{
    for (struct epx_route *route = comm->routes; route; route = route->next)
        spoil(route, id, error);
    for (struct epx_request *request = comm->first; request; request = request->next)
        spoil(request->route, id, error);
}

void epx_comm_drain(struct epx_comm *comm)
{
    int idle = 0, moved, busy;

    do {
        epx_lock();
        epx_request_queue_rest(comm->last);
        moved = epx_progress();
        busy = comm->first != NULL;
        epx_unlock();
        idle = moved ? 0 : idle + 1;
        epx_pause(idle);
    } while (busy);
}

static int lacks(const void *step, int rank)
{
    const struct epx_request *request = step;

    return request->lacks ? request->lacks(request, rank) : rank == request->waiting_for;
}

/* A step got on, so the waits before it are over. An exchange among neighbours has no ready words:
 * it waits for the words of the verb's first phase in their place. */
static void end_waits(struct epx_comm *comm, struct epx_request *request)
{
    const struct epx_graph *graph = request->call.graph;
    const int phase = graph && !graph->everyone ? EPX_PHASE_VERB + 1 : EPX_PHASE_VERB;
    const int agreed = !request->launch && request->phase >= phase;

    epx_waits_step(&comm->waits, agreed);
    if (agreed && !request->agreed_ns)
        request->agreed_ns = epx_trace_time();
}

/* A step on host memory: it got on, or is part of a wait. */
static void clock_step(struct epx_comm *comm, const struct epx_request *request, int moved)
{
    epx_comm_clock(comm, &comm->clock, moved, request->waiting_for);
    if (!moved && !comm->finished)
        epx_waits_look(&comm->waits, (struct epx_waits_lack){lacks, request},
                       comm->clock.last_pass_ns);
}

/* Ends the communicator after an operation failed in MPI here: the peers are still in that
 * operation. */
static void end_broken(struct epx_comm *comm)
{
    char message[EPX_MAX_ERROR_STRING];

    epx_status_locate(comm->rank, message);
    epx_comm_give_up(comm, message);
}

int epx_progress_comm(struct epx_comm *comm)
{
    int any = 0;

    epx_comm_hear(comm);
    while (comm->first && !comm->finished) {
        struct epx_request *request = comm->first;
        int moved = 0, error;

        comm->position = request->place;
        epx_status_enter(epx_verb_name(request->call.verb));
        error = request->progress(request, &moved);
        any |= moved;
        if (moved)
            end_waits(comm, request);
        if (error == EPX_SUCCESS && !request->complete) {
            if (!request->launch)
                clock_step(comm, request, moved);
            else if (!request->queue_rest) /* else nobody waits for it yet */
                epx_comm_watch(comm);
            break;
        }
        comm->stats.timeouts += error == EPX_ERR_TIMEOUT;
        epx_waits_end(&comm->waits);
        epx_request_complete(request, error);
        comm->clock = (struct epx_clock){0};
        any = 1;
        if (error == EPX_ERR_MPI)
            end_broken(comm);
    }
    if (comm->finished)
        epx_comm_drain_finished(comm);
    return any;
}

/* Only listens for peers: without a request nothing can move. A pass looks at a few, so that it
 * does not take longer the more communicators there are. */
static void progress_idle(void)
{
    struct epx_comm *first = NULL;

    for (int i = 0; i < IDLE_A_PASS; i++) {
        struct epx_comm *comm = epx_comm_next_idle();

        if (!comm || comm == first)
            return;
        first = first ? first : comm;
        epx_progress_comm(comm);
    }
}

int epx_progress(void)
{
    struct epx_status_place place = epx_status_leave();
    struct epx_comm *next;
    int moved = 0;

    for (struct epx_comm *comm = epx_comm_first_busy(); comm; comm = next) {
        next = comm->next;
        epx_comm_relist(comm); /* it may have become idle since the last pass */
        if (comm->listed != EPX_LISTED_BUSY)
            continue;
        epx_comm_listen(comm, &comm->birth);
        moved |= epx_progress_comm(comm);
    }
    progress_idle();
    epx_status_return(place);
    return moved;
}

static void append(struct epx_comm *comm, struct epx_request *request)
{
    if (comm->last)
        comm->last->next = request;
    else
        comm->first = request;
    comm->last = request;
    epx_comm_relist(comm);
}

/*
 * Queues what the last operation of each communicator has left for later: it takes its place in the
 * operation's stream now, and were it behind the operation that is about to be called, it would
 * wait for ranks that have yet to call that one, and may do so only when theirs of this is
 * complete. An error is that communicator's.
 */
static void queue_rests(void)
{
    struct epx_comm *next;

    for (struct epx_comm *comm = epx_comm_first_busy(); comm; comm = next) {
        next = comm->next;
        epx_request_queue_rest(comm->last);
    }
}

/* Whether it is an operation of a graph, in which neighbours alone take part. */
static int is_of_graph(const struct epx_request *request)
{
    return request->call.graph && !request->call.graph->everyone;
}

/* What kernels send is not counted: an exchange counts one message for each other rank that this
 * one has an edge with. */
static void count_messages(struct epx_comm *comm, const struct epx_request *request)
{
    if (request->launch && request->call.graph)
        comm->stats.messages += (uint64_t)request->call.graph->peers.others;
}

static int start(struct epx_comm *comm, struct epx_request *request)
{
    if (request->launch)
        queue_rests();
    if (request->launch && !comm->finished)
        EPX_TRY(request->launch(request));
    request->place = ++comm->queued;
    request->epoch = is_of_graph(request) ? ++request->call.graph->epoch : ++comm->epoch;
    request->called_ns = epx_trace_time();
    comm->stats.calls++;
    count_messages(comm, request);
    if (!request->captured)
        append(comm, request);
    return EPX_SUCCESS;
}

int epx_request_submit(struct epx_request *request)
{
    int rc;

    epx_lock();
    rc = start(request->comm, request);
    if (rc == EPX_SUCCESS)
        epx_progress();
    else
        epx_request_abandon(request);
    epx_waits_leave();
    epx_unlock();
    return rc;
}

static void *thread_main(void *argument)
{
    static const struct timespec nap = {0, NAP_NS};
    struct epx_comm *comm = argument;
    int idle = 0, stops = 0;

    while (!stops) {
        int queued;

        epx_lock();
        idle = epx_progress_comm(comm) ? 0 : idle + 1;
        queued = comm->first != NULL;
        stops = comm->thread_stops;
        epx_unlock();
        if (!queued)
            nanosleep(&nap, NULL);
        else
            epx_pause_in_thread(idle);
    }
    return NULL;
}

/* Threads that watch, of this process, and whether it exits. */
static _Atomic int watchers, exits;
static pid_t process;

static void *watch_main(void *argument)
{
    static const struct timespec nap = {0, WATCHING_NAP_NS};
    struct epx_comm *comm = argument;
    int stops = 0;

    while (!stops && !atomic_load(&exits)) {
        epx_lock();
        epx_progress_comm(comm);
        stops = comm->thread_stops;
        epx_unlock();
        nanosleep(&nap, NULL);
    }
    atomic_fetch_sub(&watchers, 1);
    return NULL;
}

/* At exit: CUDA's handler, which was registered first and so runs last, frees what threads read. A
 * child of fork has no such threads. */
static void end_watchers(void)
{
    static const struct timespec nap = {0, WATCHING_NAP_NS};
    const int64_t end = epx_deadline_in(GRACE_MS);

    atomic_store(&exits, getpid() == process);
    while (atomic_load(&exits) && atomic_load(&watchers) && !epx_deadline_is_over(end))
        nanosleep(&nap, NULL);
}

static void end_watchers_at_exit(void)
{
    process = getpid();
    atexit(end_watchers);
}

static int start_watching(struct epx_comm *comm)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int error;

    pthread_once(&once, end_watchers_at_exit);
    atomic_fetch_add(&watchers, 1);
    error = pthread_create(&comm->thread, NULL, watch_main, comm);
    if (error)
        atomic_fetch_sub(&watchers, 1);
    return error;
}

int epx_comm_start_thread(struct epx_comm *comm, int watches)
{
    int error =
        watches ? start_watching(comm) : pthread_create(&comm->thread, NULL, thread_main, comm);

    EPX_FAIL_IF(error, EPX_ERR_NO_MEM, "no progress thread: %s", strerror(error));
    comm->threaded = comm->waits.threaded = 1;
    return EPX_SUCCESS;
}

void epx_comm_stop_thread(struct epx_comm *comm)
{
    if (!comm->threaded)
        return;
    epx_lock();
    comm->thread_stops = 1;
    epx_unlock();
    pthread_join(comm->thread, NULL);
    comm->threaded = 0;
}
