/* SPDX-License-Identifier: BSD-3-Clause */
/* comm.c - the communicator: the list of all, and its life up to the last release. */
#include "core/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pause.h"
#include "control/mpi_module.h"

static struct list {
    struct epx_comm *first, *last;
} busy_comms, idle_comms;             /* under the lock */
static struct epx_comm *buried_comms; /* under the lock */
static struct epx_comm spare_comm;    /* under the lock */
static int spare_taken;
static atomic_int num_without_mpi;

static struct list *list_of(const struct epx_comm *comm)
{
    return comm->listed == EPX_LISTED_BUSY ? &busy_comms : &idle_comms;
}

static void append(struct epx_comm *comm, enum epx_listed_as as)
{
    struct list *list;

    comm->listed = as;
    list = list_of(comm);
    comm->next = NULL;
    comm->previous = list->last;
    if (list->last)
        list->last->next = comm;
    else
        list->first = comm;
    list->last = comm;
}

static void take_out(struct epx_comm *comm)
{
    struct list *list = list_of(comm);

    if (comm->next)
        comm->next->previous = comm->previous;
    else
        list->last = comm->previous;
    if (comm->previous)
        comm->previous->next = comm->next;
    else
        list->first = comm->next;
    comm->next = comm->previous = NULL;
    comm->listed = EPX_UNLISTED;
}

/* A child of fork has none of its parent's threads and connections, but what ranks store into: it
 * has no communicators, so that no operation goes on in both. */
static void forget_parent(void)
{
    epx_handle_forget_all();
    busy_comms = idle_comms = (struct list){NULL, NULL};
    buried_comms = NULL;
    spare_taken = 0;
    atomic_store(&num_without_mpi, 0);
    epx_trace_forget();
    epx_pause_progresses(NULL);
    epx_unlock();
}

static void register_watch(void)
{
    pthread_atfork(epx_lock, epx_unlock, forget_parent);
}

void epx_watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, register_watch);
}

void epx_comm_enlist(struct epx_comm *comm)
{
    epx_watch_forks();
    epx_lock();
    append(comm, EPX_LISTED_IDLE);
    epx_comm_relist(comm);
    epx_unlock();
}

void epx_comm_unlist(struct epx_comm *comm)
{
    epx_lock();
    if (comm->listed != EPX_UNLISTED)
        take_out(comm);
    epx_unlock();
}

void epx_comm_note_error(struct epx_comm *comm, int error, const char *message)
{
    if (comm->async_error != EPX_SUCCESS)
        return;
    comm->async_error = error;
    comm->async_message = calloc(1, EPX_MAX_ERROR_STRING);
    if (comm->async_message)
        snprintf(comm->async_message, EPX_MAX_ERROR_STRING, "%s", message);
}

int epx_comm_take_error(struct epx_comm *comm)
{
    int error = comm->async_error;

    if (comm->async_message)
        snprintf(comm->message, sizeof(comm->message), "%s", comm->async_message);
    free(comm->async_message);
    comm->async_message = NULL;
    comm->async_error = EPX_SUCCESS;
    return error;
}

void epx_comm_relist(struct epx_comm *comm)
{
    enum epx_listed_as as =
        comm->first || comm->awaited || comm->birth.ops ? EPX_LISTED_BUSY : EPX_LISTED_IDLE;

    if (comm->listed == EPX_UNLISTED || comm->listed == as)
        return;
    take_out(comm);
    append(comm, as);
}

static struct epx_comm *first_by_mpi(const struct list *list)
{
    struct epx_comm *comm = list->first;

    while (comm && !comm->by_mpi)
        comm = comm->next;
    return comm;
}

struct epx_comm *epx_comm_any_by_mpi(void)
{
    struct epx_comm *busy = first_by_mpi(&busy_comms);

    return busy ? busy : first_by_mpi(&idle_comms);
}

int epx_comm_without_mpi(void)
{
    return atomic_load(&num_without_mpi);
}

void epx_comm_does_without_mpi(struct epx_comm *comm)
{
    comm->without_mpi = 1;
    atomic_fetch_add(&num_without_mpi, 1);
}

struct epx_comm *epx_comm_first_busy(void)
{
    return busy_comms.first;
}

struct epx_comm *epx_comm_next_idle(void)
{
    struct epx_comm *comm = idle_comms.first;

    if (comm) {
        take_out(comm);
        append(comm, EPX_LISTED_IDLE);
    }
    return comm;
}

enum epx_distance epx_comm_distance(const struct epx_comm *comm, int rank)
{
    if (rank == comm->rank)
        return EPX_DISTANCE_SELF;
    return comm->node[rank] == comm->node[comm->rank] ? EPX_DISTANCE_NODE : EPX_DISTANCE_NETWORK;
}

/* The first communicator for which there is no memory is made in the spare one, so that this rank
 * can tell the others. */
static struct epx_comm *allocate(int *own_rc)
{
    struct epx_comm *comm = calloc(1, sizeof(*comm));

    if (comm)
        return comm;
    *own_rc = epx_fail(EPX_ERR_NO_MEM, "no memory for a communicator");
    epx_lock();
    if (!spare_taken) {
        spare_taken = 1;
        memset(&spare_comm, 0, sizeof(spare_comm));
        comm = &spare_comm;
    }
    epx_unlock();
    return comm;
}

struct epx_comm *epx_comm_allocate(const struct epx_params *params, int *own_rc)
{
    struct epx_comm *comm = allocate(own_rc);

    if (!comm)
        return NULL;
    comm->references = 1;
    comm->params = *params;
    comm->stats.size = sizeof(comm->stats);
    return comm;
}

static void free_comm(struct epx_comm *comm)
{
    if (comm->everyone)
        comm->everyone_free(comm->everyone);
    free(comm->async_message);
    free(comm->agreement.gathered);
    free(comm->answers);
    epx_waits_free(&comm->waits);
    free(comm->lost);
    free(comm->parent_ranks);
    free(comm->node);
    free(comm->real_node);
    atomic_fetch_sub(&num_without_mpi, comm->without_mpi);
    if (comm != &spare_comm) {
        free(comm);
        return;
    }
    epx_lock();
    spare_taken = 0;
    epx_unlock();
}

static void bury(struct epx_comm *comm)
{
    epx_lock();
    comm->next = buried_comms;
    buried_comms = comm;
    epx_unlock();
}

/* A collective of MPI that was given up may still read and write the agreement of the communicator,
 * which stays then, whatever else is freed. */
void epx_comm_close(struct epx_comm *comm)
{
    const int by_mpi = epx_comm_agrees_by_mpi(comm);

    epx_comm_unlist(comm);
    epx_lock();
    epx_trace_close(&comm->traced, comm->waits.told_ns, comm->waits.told_operations);
    epx_unlock();
    if (comm->control.ops && comm->control.ops->free)
        comm->control.ops->free(comm->control.state, comm->finished, comm->finish_message);
    comm->control.ops = NULL;
    if (comm->finished && (!comm->fenced || by_mpi)) {
        bury(comm);
        return;
    }
    if (comm->by_mpi && !comm->finished)
        epx_mpi_open()->close(comm);
    epx_comm_release(comm);
}

void epx_comm_retain(struct epx_comm *comm)
{
    epx_lock();
    comm->references++;
    epx_unlock();
}

void epx_comm_release(struct epx_comm *comm)
{
    int references;

    if (!comm)
        return;
    epx_lock();
    references = --comm->references;
    epx_unlock();
    if (references == 0)
        free_comm(comm);
}
