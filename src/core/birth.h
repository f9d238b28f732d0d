/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * birth.h - how ranks that make a communicator learn who lives, and that they come to one verdict
 * about it. birth.c has the protocol and why it works.
 */
#ifndef EPX_CORE_BIRTH_H
#define EPX_CORE_BIRTH_H

#include "core/comm.h"

/* Local: opens the letters on the traffic communicator, and greets the other ranks. From now on
 * comm->birth is the liveness of those that wait. */
int epx_birth_begin(struct epx_comm *comm);
/* Local, once all ranks have letters: has MPI make its ways to all other ranks, as mailbox.h says
 * of letters that are confirmed. */
int epx_birth_confirm(struct epx_comm *comm);
/*
 * Collective, bounded: the verdict on the making of the communicator, the same on all ranks that
 * live. rc is what the ranks agreed on. The result is rc, or EPX_ERR_TIMEOUT if a rank stopped
 * before all knew rc. If one stopped later, the result is rc and the communicator is finished.
 */
int epx_birth_settle(struct epx_comm *comm, int rc);
/* Local: closes the letters. */
void epx_birth_end(struct epx_comm *comm);

#endif
