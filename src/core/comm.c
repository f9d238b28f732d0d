/* SPDX-License-Identifier: BSD-3-Clause */
/* comm.c - the communicator: the list of all, and its life up to the last release. */
#include "core/comm.h"

#include <stdlib.h>
#include <string.h>

static struct epx_comm *all_comms;    /* under the lock */
static struct epx_comm *buried_comms; /* under the lock */
static struct epx_comm spare_comm;    /* under the lock */
static int spare_taken;

struct epx_comm *epx_comm_first(void)
{
    return all_comms;
}

void epx_comm_enlist(struct epx_comm *comm)
{
    struct epx_comm **end = &all_comms;

    epx_lock();
    while (*end)
        end = &(*end)->next;
    *end = comm;
    epx_unlock();
}

void epx_comm_unlist(struct epx_comm *comm)
{
    struct epx_comm **link = &all_comms;

    epx_lock();
    while (*link && *link != comm)
        link = &(*link)->next;
    if (*link)
        *link = comm->next;
    comm->next = NULL;
    epx_unlock();
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
    comm->user = comm->traffic = comm->control = MPI_COMM_NULL;
    comm->stats.size = sizeof(comm->stats);
    return comm;
}

static void free_comm(struct epx_comm *comm)
{
    free(comm->agreement.gathered);
    free(comm->answers);
    free(comm->node);
    free(comm->real_node);
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

void epx_comm_close(struct epx_comm *comm)
{
    MPI_Comm *parts[] = {&comm->control, &comm->traffic, &comm->user};

    if (comm->finished) {
        bury(comm);
        return;
    }
    for (int i = 0; i < 3; i++)
        if (*parts[i] != MPI_COMM_NULL)
            MPI_Comm_free(parts[i]);
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
