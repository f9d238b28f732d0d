/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.c - moves the queues on, measures how long a wait lasts, and ends a communicator. */
#include "core/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/pause.h"
#include "core/route.h"

enum { GRACE_MS = 5000, WATCHED_MS = 100, ANSWER_MS = 200 };
enum { LOOKS_BEFORE_BLAME = 32, IDLE_A_PASS = 8 };

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

static const char *current_operation(const struct epx_comm *comm)
{
    const char *function = epx_status_function();

    if (comm->first)
        return epx_verb_name(comm->first->call.verb);
    return function ? function : "EPX";
}

static const struct epx_liveness *liveness_of(const struct epx_comm *comm)
{
    return comm->birth.ops ? &comm->birth : &comm->liveness;
}

/* Asks all ranks who lives, for this clock. Several clocks may ask, and a probe forgets the answers
 * to the question before it, so those are noted in comm->answers first. */
static void ask_who_is_alive(struct epx_comm *comm, struct epx_clock *clock)
{
    const struct epx_liveness *liveness = liveness_of(comm);
    uint64_t epoch;

    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && liveness->ops->answered(liveness->state, r, &epoch))
            comm->answers[r] = comm->questions;
    clock->question = ++comm->questions;
    liveness->ops->probe(liveness->state);
}

static int is_alive(const struct epx_comm *comm, const struct epx_clock *clock, int rank,
                    uint64_t *epoch)
{
    return comm->liveness.ops->answered(comm->liveness.state, rank, epoch) ||
           comm->answers[rank] >= clock->question;
}

/* The rank to blame: a silent one, else the one furthest behind, else the one waited for. */
static int find_culprit(const struct epx_comm *comm, const struct epx_clock *clock, int waiting_for)
{
    const struct epx_liveness *liveness = liveness_of(comm);
    uint64_t epoch, least = comm->position;
    int culprit = waiting_for;

    if (liveness->ops->culprit)
        return liveness->ops->culprit(liveness->state);
    for (int i = 0; i < comm->size; i++) {
        int rank = (i + (waiting_for < 0 ? 0 : waiting_for)) % comm->size;

        if (rank == comm->rank)
            continue;
        if (!is_alive(comm, clock, rank, &epoch))
            return rank;
        if (epoch < least) {
            least = epoch;
            culprit = rank;
        }
    }
    return culprit;
}

/* tests/model/comm_end.pml has how all survivors come to one message. */
void epx_comm_finish(struct epx_comm *comm, const char *message)
{
    if (comm->finished)
        return;
    comm->finished = EPX_ERR_TIMEOUT;
    comm->finished_ns = epx_now_ns();
    epx_comm_note_error(comm, EPX_ERR_TIMEOUT, message);
    snprintf(comm->finish_message, sizeof(comm->finish_message), "%s", message);
    snprintf(comm->message, sizeof(comm->message), "%s", message);
    EPX_LOG_ERROR("%s; the communicator is finished", message);
}

void epx_comm_describe_silence(const struct epx_comm *comm, const char *operation, int culprit,
                               char *message)
{
    snprintf(message, EPX_MAX_ERROR_STRING, "%s: rank %d did not answer within %lld ms", operation,
             culprit, (long long)comm->params.timeout_ms);
}

/*
 * Whether a request of a finished communicator may complete. Its kernels end soon, and may store
 * into the user's buffers until then. A kernel that has not ended after the grace period has not
 * begun: when it begins, it sees the end first and stores nothing.
 */
static int is_over(const struct epx_comm *comm, const struct epx_request *request)
{
    int64_t grace_ms = epx_shorter_ms(GRACE_MS, comm->params.timeout_ms);

    if (!request->ended || request->ended(request))
        return 1;
    return epx_deadline_is_over(comm->finished_ns + grace_ms * EPX_NS_PER_MS);
}

static void drain_finished(struct epx_comm *comm)
{
    epx_request_queue_rest(comm->last); /* which ends at once: its kernels see the end */
    while (comm->first && is_over(comm, comm->first)) {
        epx_fail_quietly(comm->finished, comm->finish_message);
        comm->stats.timeouts++;
        epx_request_complete(comm->first, comm->finished);
    }
}

void epx_comm_give_up(struct epx_comm *comm, const char *message)
{
    const struct epx_liveness *liveness = liveness_of(comm);
    char first[EPX_MAX_ERROR_STRING];

    snprintf(first, sizeof(first), "%s", message);
    if (liveness->ops)
        liveness->ops->announce(liveness->state, first);
    epx_comm_finish(comm, first);
    drain_finished(comm);
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

static void blame(struct epx_comm *comm, const struct epx_clock *clock, int waiting_for)
{
    char message[EPX_MAX_ERROR_STRING];
    const struct epx_liveness *liveness = liveness_of(comm);
    int culprit = waiting_for;
    long long timeout_ms = (long long)comm->params.timeout_ms;

    if (liveness->ops)
        culprit = find_culprit(comm, clock, waiting_for);
    if (culprit >= 0)
        epx_comm_describe_silence(comm, current_operation(comm), culprit, message);
    else
        snprintf(message, sizeof(message), "%s: not all %d ranks came within %lld ms",
                 current_operation(comm), comm->size, timeout_ms);
    epx_comm_give_up(comm, message);
}

static void listen_to_peers(struct epx_comm *comm, const struct epx_liveness *liveness)
{
    char message[EPX_MAX_ERROR_STRING];

    if (!comm->finished && liveness->ops &&
        liveness->ops->beat(liveness->state, comm->position, message))
        epx_comm_finish(comm, message);
}

/* Lets the control plane move and hears the peers; only then, as they may know better why, ends the
 * communicator if a rank gave up, or is lost. */
static void pass_control(struct epx_comm *comm)
{
    const struct epx_control *control = &comm->control;
    const struct epx_liveness *liveness = liveness_of(comm);
    char message[EPX_MAX_ERROR_STRING];
    int moves = control->ops && control->ops->pass, rank;

    if (moves && !comm->finished)
        control->ops->pass(control->state, comm->awaited || comm->birth.ops);
    listen_to_peers(comm, &comm->liveness);
    if (!moves || comm->finished)
        return;
    if (control->ops->told(control->state, message)) {
        epx_comm_give_up(comm, message);
        return;
    }
    rank = control->ops->lost(control->state, message);
    if (rank < 0)
        return;
    if (liveness->ops && liveness->ops->blame)
        liveness->ops->blame(liveness->state, rank);
    epx_comm_give_up(comm, message);
}

/*
 * Whether this host looked for answers often enough: MPI takes several passes to read what came by
 * the network. A host that calls EPX rarely makes its missing looks in one go after twice the
 * timeout.
 */
static int has_looked(struct epx_comm *comm, struct epx_clock *clock, int64_t bound)
{
    if (clock->looks <= LOOKS_BEFORE_BLAME && clock->waited_ns < 2 * bound)
        return 0;
    for (; clock->looks <= LOOKS_BEFORE_BLAME; clock->looks++) {
        listen_to_peers(comm, &comm->birth);
        listen_to_peers(comm, &comm->liveness);
    }
    return !comm->finished;
}

/*
 * The rank that a long wait is for: the one that the operation names, or that the kernels wait for,
 * or, where messages tell nothing, one that does not answer or is behind. Returns 0 while answers
 * are awaited; *rank is -1 if none is known.
 */
static int find_awaited(struct epx_comm *comm, struct epx_clock *clock, int *rank)
{
    const struct epx_liveness *liveness = liveness_of(comm);

    if (*rank >= 0 || !liveness->ops)
        return 1;
    if (liveness->ops->behind) {
        *rank = liveness->ops->behind(liveness->state);
        return 1;
    }
    if (!clock->warn_asked_ns) {
        ask_who_is_alive(comm, clock);
        clock->warn_asked_ns = clock->watched_ns;
    }
    if (clock->watched_ns < clock->warn_asked_ns + ANSWER_MS * EPX_NS_PER_MS)
        return 0;
    *rank = find_culprit(comm, clock, -1);
    return 1;
}

/* Says once in a wait for whom it waits. */
static void warn(struct epx_comm *comm, struct epx_clock *clock, int waiting_for)
{
    long long warn_ms = (long long)comm->params.warn_ms;

    if (!warn_ms || clock->warned || clock->watched_ns < warn_ms * EPX_NS_PER_MS ||
        !find_awaited(comm, clock, &waiting_for))
        return;
    clock->warned = 1;
    if (waiting_for >= 0)
        EPX_LOG_WARN("%s: has waited more than %lld ms for rank %d", current_operation(comm),
                     warn_ms, waiting_for);
    else
        EPX_LOG_WARN("%s: not through after %lld ms", current_operation(comm), warn_ms);
}

/*
 * Adds the time since the last pass. Of a long gap, in which this host was busy elsewhere, at most
 * half the timeout counts as waited, and a little as watched.
 */
static void measure(const struct epx_comm *comm, struct epx_clock *clock)
{
    int64_t bound = comm->params.timeout_ms * EPX_NS_PER_MS, most = WATCHED_MS * EPX_NS_PER_MS;
    int64_t now = epx_now_ns(), gap = clock->last_pass_ns ? now - clock->last_pass_ns : 0;

    clock->last_pass_ns = now;
    clock->waited_ns += gap < bound / 2 ? gap : bound / 2;
    clock->watched_ns += gap < most ? gap : most;
}

void epx_comm_clock(struct epx_comm *comm, struct epx_clock *clock, int moved, int waiting_for)
{
    int64_t bound = comm->params.timeout_ms * EPX_NS_PER_MS;

    if (moved || comm->finished) {
        memset(clock, 0, sizeof(*clock));
        return;
    }
    measure(comm, clock);
    warn(comm, clock, waiting_for);
    if (!bound || clock->waited_ns < bound / 2)
        return;
    if (clock->looks++ == 0 && liveness_of(comm)->ops)
        ask_who_is_alive(comm, clock);
    else if (clock->waited_ns >= bound && has_looked(comm, clock, bound))
        blame(comm, clock, waiting_for);
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

/* The wait of an operation whose kernels have the clock that counts. */
static void watch_kernels(struct epx_comm *comm)
{
    measure(comm, &comm->clock);
    warn(comm, &comm->clock, -1);
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

    pass_control(comm);
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
                watch_kernels(comm);
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
        drain_finished(comm);
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
        next = comm->next; /* it may become idle now */
        listen_to_peers(comm, &comm->birth);
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
    static const struct timespec nap = {0, 50000};
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

int epx_comm_start_thread(struct epx_comm *comm)
{
    int error = pthread_create(&comm->thread, NULL, thread_main, comm);

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
