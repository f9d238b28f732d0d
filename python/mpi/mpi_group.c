/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_group.c - communicators of MPI for some ranks of MPI_COMM_WORLD, made in bounded time.
 *
 * MPI_Comm_create_group waits for ever for a rank that does not come, and has no nonblocking form.
 * So a thread calls it, and the caller waits for that thread until the time-out. A thread that is
 * still in MPI then is left there, and its making stays in a list: who asks for the same group
 * again waits for the same call, since a second one beside it would be an error in MPI. If the call
 * returns with nobody waiting, the ranks that came late wait for this one in what was made: for the
 * time-out. Who asks within the first half of it takes what was made; after that it is left, and
 * the ranks begin anew. The thread and the waiter touch a making under the mutex alone, but for
 * what the call reads and writes, which is the thread's until is_done.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "mpi/mpi_parts.h"

enum { PAUSE_NS = 50000 };

struct making {
    struct making *next;
    MPI_Group group;
    int tag;
    MPI_Comm comm; /* this and failed: what the call gave, once is_done */
    int failed;
    int is_done, is_awaited;
    int64_t timeout_ms; /* of the last waiter */
    int64_t done_ns;    /* when the call returned, once is_done */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct making *makings; /* that have a thread in MPI, a waiter, or may still be taken */

static void unlist(struct making *making)
{
    struct making **link = &makings;

    while (*link != making)
        link = &(*link)->next;
    *link = making->next;
    MPI_Group_free(&making->group);
    free(making);
}

static void call(struct making *making)
{
    making->failed = MPI_Comm_create_group(MPI_COMM_WORLD, making->group, making->tag,
                                           &making->comm) != MPI_SUCCESS;
}

static void *run(void *argument)
{
    struct making *making = argument;

    call(making);
    pthread_mutex_lock(&mutex);
    making->is_done = 1;
    making->done_ns = epx_python_now_ns();
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* Groups that have ranks in common may be made at the same time: by tags of their own. */
static int tag_of(MPI_Group group, enum epx_python_purpose purpose)
{
    enum { MOST_TAGS = 16384 }; /* MPI has 32767 at least */
    unsigned hash = (unsigned)purpose;
    MPI_Group world;
    int size;

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_size(group, &size);
    for (int i = 0; i < size; i++) {
        int rank;

        MPI_Group_translate_ranks(group, 1, &i, world, &rank);
        hash = hash * 31 + (unsigned)rank;
    }
    MPI_Group_free(&world);
    return EPX_PYTHON_PURPOSES * (int)(hash % (MOST_TAGS / EPX_PYTHON_PURPOSES)) + (int)purpose;
}

static int is_over(const struct making *making)
{
    const int64_t half_ns = making->timeout_ms * 500000;

    return making->is_done && !making->is_awaited &&
           (making->failed || epx_python_now_ns() - making->done_ns > half_ns);
}

static void unlist_what_is_over(void)
{
    struct making *next;

    for (struct making *making = makings; making; making = next) {
        next = making->next;
        if (is_over(making))
            unlist(making);
    }
}

static struct making *find(MPI_Group group, int tag)
{
    unlist_what_is_over();
    for (struct making *making = makings; making; making = making->next) {
        int same;

        MPI_Group_compare(making->group, group, &same);
        if (same == MPI_IDENT && making->tag == tag && !making->is_awaited)
            return making;
    }
    return NULL;
}

/* Begins the call in a thread; NULL if there is no memory for it. */
static struct making *begin(MPI_Group group, int tag)
{
    struct making *making = calloc(1, sizeof(*making));
    pthread_t thread;

    if (!making)
        return NULL;
    MPI_Group_excl(group, 0, NULL, &making->group);
    making->tag = tag;
    making->next = makings;
    makings = making;
    if (pthread_create(&thread, NULL, run, making) != 0) {
        unlist(making);
        return NULL;
    }
    pthread_detach(thread);
    return making;
}

/* Whether the call has returned; gives up after the time-out, if that is not 0. The caller has the
 * mutex. */
static int await(const struct making *making, int64_t timeout_ms)
{
    const struct timespec pause = {0, PAUSE_NS};
    const int64_t start = epx_python_now_ns();

    while (!making->is_done &&
           (timeout_ms == 0 || epx_python_now_ns() - start < timeout_ms * 1000000)) {
        pthread_mutex_unlock(&mutex);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&mutex);
    }
    return making->is_done;
}

static int make_by_thread(MPI_Group group, int tag, int64_t timeout_ms, MPI_Comm *comm)
{
    struct making *making;
    int rc = EPX_ERR_TIMEOUT;

    pthread_mutex_lock(&mutex);
    making = find(group, tag);
    if (!making)
        making = begin(group, tag);
    if (!making) {
        rc = EPX_ERR_NO_MEM;
    } else {
        making->is_awaited = 1;
        making->timeout_ms = timeout_ms;
        if (await(making, timeout_ms)) {
            rc = making->failed ? EPX_ERR_MPI : EPX_SUCCESS;
            *comm = making->comm;
            unlist(making);
        } else {
            making->is_awaited = 0;
        }
    }
    pthread_mutex_unlock(&mutex);
    return rc;
}

static int make_here(MPI_Group group, int tag, MPI_Comm *comm)
{
    struct making making = {.group = group, .tag = tag};

    call(&making);
    *comm = making.comm;
    return making.failed ? EPX_ERR_MPI : EPX_SUCCESS;
}

/* Collective over the group. Below MPI_THREAD_MULTIPLE no thread may be left in MPI, and the call
 * waits for all ranks for as long as it takes. */
int epx_python_group_comm(MPI_Group group, enum epx_python_purpose purpose, int64_t timeout_ms,
                          MPI_Comm *comm)
{
    const int tag = tag_of(group, purpose);
    int level, size, rc;

    MPI_Query_thread(&level);
    MPI_Group_size(group, &size);
    if (level < MPI_THREAD_MULTIPLE)
        rc = make_here(group, tag, comm);
    else
        rc = make_by_thread(group, tag, timeout_ms, comm);
    switch (rc) {
    case EPX_SUCCESS: return EPX_SUCCESS;
    case EPX_ERR_TIMEOUT:
        return epx_python_fail(rc, "not all %d ranks of the group came within %lld ms", size,
                               (long long)timeout_ms);
    case EPX_ERR_NO_MEM: return epx_python_fail(rc, "no memory for a thread");
    default: return epx_python_fail(rc, "MPI_Comm_create_group of %d ranks failed", size);
    }
}

/* Whether a thread is in MPI, which must not be finalized then. */
int epx_python_is_making_group(void)
{
    int is_making = 0;

    pthread_mutex_lock(&mutex);
    for (const struct making *making = makings; making; making = making->next)
        is_making |= !making->is_done;
    pthread_mutex_unlock(&mutex);
    return is_making;
}
