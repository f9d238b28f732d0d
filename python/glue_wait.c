/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_wait.c - how operations for Python end.
 *
 * On host memory a call from Python waits for a slice of time and then returns, so that Python sees
 * its signals, and comes again. XLA and what times operations wait to the end.
 */
#include "glue.h"

#include <stdlib.h>
#include <time.h>

enum { SLICE_NS = 100000000, SPIN_NS = 1000000, PAUSE_NS = 50000, LOOKS_BEFORE_MPI = 64 };

static const struct timespec pause_of_looks = {0, PAUSE_NS};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct epx_python_work *works; /* that Python may ask for */

static int finish(const struct epx_python_comm *comm, EPX_Request *request, EPX_Stream stream)
{
    if (*request == EPX_REQUEST_NULL)
        return EPX_SUCCESS;
    return epx_python_check(comm, comm->on_device ? EPX_Wait_enqueue(request, stream)
                                                  : EPX_Wait(request, MPI_STATUS_IGNORE));
}

/* On host memory: waits for the routing whose request the work has, and keeps its outcome there. */
static int finish_routing(const struct epx_python_comm *comm, struct epx_python_work *work)
{
    work->rc = finish(comm, &work->routing, EPX_STREAM_NULL);
    if (work->rc != EPX_SUCCESS)
        epx_python_message(work->message);
    return work->rc;
}

static void read_view(struct epx_python_route *route)
{
    struct epx_python_work *work = route->unread;

    route->unread = NULL;
    if (finish_routing(route->owner, work) == EPX_SUCCESS)
        epx_python_view_copy(route, &work->view);
}

/* On host memory: waits for the latest routing and copies what it shows, before the route gets
 * another; with work only if the routing is that of the work. */
void epx_python_settle_view(struct epx_python_route *route, const struct epx_python_work *work)
{
    pthread_mutex_lock(&route->reading);
    if (route->unread && (!work || route->unread == work))
        read_view(route);
    pthread_mutex_unlock(&route->reading);
}

/* A routing that failed is none: the next operation on the route brings its own. */
static void forget_routing(const struct epx_python_work *work)
{
    struct epx_python_route *route;

    if (epx_python_route(work->route, &route) == EPX_SUCCESS && route->current == work->key)
        route->current = 0;
}

/* Has the next operation on the route bring its own routing, unless the route has another routing
 * than that of the key. All ranks call this alike. */
int epx_python_drop_routing(int64_t number, int64_t key)
{
    struct epx_python_route *route;

    EPX_PYTHON_TRY(epx_python_route(number, &route));
    if (route->current == key)
        route->current = 0;
    return EPX_SUCCESS;
}

/* Under the lock of the route: takes the outcome of the routing if it is there; returns whether it
 * is. */
static int take_routing(struct epx_python_route *route, struct epx_python_work *work)
{
    int done = 0;
    int rc = epx_python_check(route->owner, EPX_Test(&work->routing, &done, MPI_STATUS_IGNORE));

    if (rc != EPX_SUCCESS) {
        done = 1;
        work->rc = rc;
        epx_python_message(work->message);
    }
    if (done && route->unread == work) {
        route->unread = NULL;
        if (rc == EPX_SUCCESS)
            epx_python_view_copy(route, &work->view);
    }
    return done;
}

/* Whether the routing is complete. Whoever routes anew on the route may have taken its outcome. */
static int look_for_routing(struct epx_python_work *work)
{
    struct epx_python_route *route = epx_python_table_get(&epx_python_routes, work->route);
    int done;

    if (!route)
        return 1; /* freed: EPX has completed what was in flight */
    pthread_mutex_lock(&route->reading);
    done = take_routing(route, work);
    pthread_mutex_unlock(&route->reading);
    return done;
}

/* Takes the outcome of the operation behind the routing if it is there; returns whether it is. */
static int look_for_request(struct epx_python_work *work, const struct epx_python_comm *comm)
{
    int done = 0, rc = epx_python_check(comm, EPX_Test(&work->request, &done, MPI_STATUS_IGNORE));

    if (rc != EPX_SUCCESS && work->rc == EPX_SUCCESS && work->started == EPX_SUCCESS) {
        work->started = rc;
        epx_python_message(work->message);
    }
    return done || rc != EPX_SUCCESS;
}

/* Now and then between looks: others may wait for MPI. */
static void progress_mpi(int look)
{
    const struct epx_python_mpi *mpi = epx_python_mpi();

    if (look % LOOKS_BEFORE_MPI == 0 && mpi && mpi->is_running())
        mpi->progress();
}

/* On host memory: returns whether the operation is over, at the latest after a slice of time. That
 * progresses MPI for others, as EPX_Wait does, and from the second slice on naps between looks. */
static int await_slice(struct epx_python_work *work, const struct epx_python_comm *comm)
{
    const int64_t start = epx_python_now_ns();
    int is_routed = work->routing == EPX_REQUEST_NULL && !work->view.offsets;

    for (int look = 1; epx_python_now_ns() - start < SLICE_NS; look++) {
        is_routed = is_routed || look_for_routing(work);
        if (is_routed && look_for_request(work, comm))
            return 1;
        progress_mpi(look);
        if (work->is_late)
            nanosleep(&pause_of_looks, NULL);
    }
    work->is_late = 1;
    return 0;
}

/* The stream waits for the copies of what the view shows: EPX's requests do not have them. */
static int await_copies(const struct epx_python_work *work, const struct epx_python_comm *comm,
                        EPX_Stream stream)
{
    return work->copied ? epx_python_device_await(comm->context, work->copied, stream)
                        : EPX_SUCCESS;
}

static int end_routing(struct epx_python_work *work, const struct epx_python_comm *comm,
                       EPX_Stream stream)
{
    struct epx_python_route *route = epx_python_table_get(&epx_python_routes, work->route);

    if (route)
        epx_python_settle_view(route, work);
    if (work->rc != EPX_SUCCESS)
        return epx_python_fail(work->rc, "%s", work->message);
    return finish(comm, &work->routing, stream);
}

int epx_python_end(struct epx_python_work *work, EPX_Stream stream)
{
    struct epx_python_comm *comm;
    int copied, rc;

    EPX_PYTHON_TRY(epx_python_comm(work->comm, &comm));
    if (comm->on_device)
        EPX_PYTHON_TRY(epx_python_device_enter(comm->context));
    copied = await_copies(work, comm, stream);
    rc = end_routing(work, comm, stream);
    if (rc != EPX_SUCCESS) {
        char message[EPX_MAX_ERROR_STRING];

        epx_python_message(message);
        forget_routing(work);
        finish(comm, &work->request, stream);
        return epx_python_fail(rc, "%s", message);
    }
    rc = finish(comm, &work->request, stream);
    if (work->started != EPX_SUCCESS)
        return epx_python_fail(work->started, "%s", work->message);
    return rc == EPX_SUCCESS ? copied : rc;
}

/* Ends the work, or returns EPX_PYTHON_UNFINISHED after a slice of time. */
int epx_python_end_in_slice(struct epx_python_work *work, EPX_Stream stream)
{
    struct epx_python_comm *comm;

    EPX_PYTHON_TRY(epx_python_comm(work->comm, &comm));
    if (!comm->on_device && !await_slice(work, comm))
        return EPX_PYTHON_UNFINISHED;
    return epx_python_end(work, stream);
}

/* The work that has the request of the latest routing of the route, or NULL; then rc is the error
 * of that routing if a work has it. */
static struct epx_python_work *find_routing(const struct epx_python_route *route, int *rc)
{
    struct epx_python_work *work;

    pthread_mutex_lock(&mutex);
    work = works;
    while (work && (work->key != route->current ||
                    (work->routing == EPX_REQUEST_NULL && work->rc == EPX_SUCCESS) ||
                    epx_python_table_get(&epx_python_routes, work->route) != route))
        work = work->next;
    *rc = work ? work->rc : EPX_SUCCESS;
    if (work && work->routing == EPX_REQUEST_NULL)
        work = NULL;
    pthread_mutex_unlock(&mutex);
    return work;
}

/* On host memory: waits for the latest routing of the route, at most for a slice of time; returns
 * EPX_PYTHON_UNFINISHED if that is still on its way. */
int epx_python_routing_in_slice(struct epx_python_route *route)
{
    const int64_t start = epx_python_now_ns();

    for (int look = 1; epx_python_now_ns() - start < SLICE_NS; look++) {
        struct epx_python_work *work;
        int done, rc;

        pthread_mutex_lock(&route->reading);
        work = route->unread ? route->unread : find_routing(route, &rc);
        done = !work || work->rc != EPX_SUCCESS || take_routing(route, work);
        pthread_mutex_unlock(&route->reading);
        if (done)
            return EPX_SUCCESS;
        progress_mpi(look);
        if (epx_python_now_ns() - start > SPIN_NS)
            nanosleep(&pause_of_looks, NULL);
    }
    return EPX_PYTHON_UNFINISHED;
}

/* Waits for the latest routing of the route where such a work has its request: who waits for that
 * gets the outcome too. */
static int finish_begun(struct epx_python_route *route)
{
    struct epx_python_work *work;
    int rc = EPX_SUCCESS;

    pthread_mutex_lock(&route->reading);
    work = route->unread ? route->unread : find_routing(route, &rc);
    if (route->unread)
        read_view(route);
    else if (work)
        finish_routing(route->owner, work);
    if (work)
        rc = work->rc;
    pthread_mutex_unlock(&route->reading);
    return rc;
}

/* On host memory: waits for the latest routing of the route, which the work may have begun, and
 * tells how many rows it has; 0 if it has none. Its error comes where the work ends, so that this
 * rank takes part in the operation all the same; with bad ids a routing has rows, too. */
int64_t epx_python_await_routing(struct epx_python_route *route, struct epx_python_work *work)
{
    const int is_mine = work->routing != EPX_REQUEST_NULL;
    const int rc = is_mine ? finish_routing(route->owner, work) : finish_begun(route);

    return rc == EPX_SUCCESS || rc == EPX_ERR_ARG ? *route->view.num_rows : 0;
}

/* Whether a work that has not ended has the request of the latest routing of the route. */
int epx_python_is_on_its_way(const struct epx_python_route *route)
{
    int rc;

    return find_routing(route, &rc) != NULL;
}

/* Gives the work a number, once, by which Python waits for it. */
int64_t epx_python_number(struct epx_python_work *work)
{
    static int64_t numbers;

    pthread_mutex_lock(&mutex);
    work->number = ++numbers;
    work->next = works;
    works = work;
    pthread_mutex_unlock(&mutex);
    return work->number;
}

static struct epx_python_work *find(int64_t number)
{
    struct epx_python_work *work;

    pthread_mutex_lock(&mutex);
    work = works;
    while (work && work->number != number)
        work = work->next;
    pthread_mutex_unlock(&mutex);
    return work;
}

/*
 * Ends what epx_python_start began, or returns EPX_PYTHON_UNFINISHED and can be called again; on
 * device memory the stream waits, and not the host. What a call returns may be lost to a signal, so
 * a later one returns the same, until the work is forgotten: that one returns EPX_SUCCESS.
 */
int epx_python_wait(int64_t number, EPX_Stream stream)
{
    struct epx_python_work *work = find(number);

    if (!work)
        return EPX_SUCCESS;
    if (!work->is_over) {
        work->outcome = epx_python_end_in_slice(work, stream);
        if (work->outcome == EPX_PYTHON_UNFINISHED)
            return EPX_PYTHON_UNFINISHED;
        work->is_over = 1;
        epx_python_message(work->message);
    }
    return work->outcome == EPX_SUCCESS ? EPX_SUCCESS
                                        : epx_python_fail(work->outcome, "%s", work->message);
}

void epx_python_discard(struct epx_python_work *work)
{
    if (work)
        epx_python_device_unmark(&work->copied);
    free(work);
}

void epx_python_forget(int64_t number)
{
    struct epx_python_work **link = &works, *work;

    pthread_mutex_lock(&mutex);
    while (*link && (*link)->number != number)
        link = &(*link)->next;
    work = *link;
    if (work)
        *link = work->next;
    pthread_mutex_unlock(&mutex);
    epx_python_discard(work);
}

/* Nobody wants what a dispatch shows any more: it is not written when somebody waits. */
void epx_python_abandon(int64_t number)
{
    struct epx_python_work *work = find(number);
    struct epx_python_route *route =
        work ? epx_python_table_get(&epx_python_routes, work->route) : NULL;

    if (!route)
        return;
    pthread_mutex_lock(&route->reading);
    if (route->unread == work)
        route->unread = NULL;
    pthread_mutex_unlock(&route->reading);
}
