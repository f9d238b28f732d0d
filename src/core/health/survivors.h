/* SPDX-License-Identifier: BSD-3-Clause */
/* survivors.h - who goes on of the ranks of a communicator that has ended; survivors.c has how they
 * agree. */
#ifndef EPX_CORE_HEALTH_SURVIVORS_H
#define EPX_CORE_HEALTH_SURVIVORS_H

#include "core/comm.h"

/* The ranks that go on, as the communicator numbers them, in order. */
struct epx_survivors_group {
    const int *ranks; /* [num], valid until the next call */
    int num, own;     /* own: this rank's place among them */
};

/*
 * Collective over the ranks that live, bounded: finds who goes on. All that succeed with one that
 * gathers have the same group. EPX_ERR_TIMEOUT if the others went on without this rank, or nobody
 * says who goes on. May be called again after an error of it, or of what came behind it.
 */
int epx_survivors_find(struct epx_comm *comm, struct epx_survivors_group *group);
/* Collective over the group, as MPI_Allgather of bytes; comm is the struct epx_comm. */
int epx_survivors_allgather(const void *own, void *all, size_t bytes, void *comm);
/* Local, once the group has a new communicator: tells the other ranks that they cannot join. */
void epx_survivors_leave_others(struct epx_comm *comm);
/* Local; takes NULL. */
void epx_survivors_free(struct epx_survivors *survivors);

#endif
