/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_watch.h - a bound for the calls of MPI in which a rank waits for others. Operations of EPX
 * have one, epx_timeout_ms; MPI waits for ever for a rank that has died.
 */
#ifndef MPI_WATCH_H
#define MPI_WATCH_H

#include "epx.h"

/*
 * Collective on MPI_COMM_WORLD, by one thread, which makes all calls of MPI. From now on, up to
 * MPI_Finalize, the program ends if a call of MPI takes longer than the communicator's
 * epx_timeout_ms, after it has said which ranks are missing, as far as they are on the same node.
 */
void mpi_watch_open(const char *program, EPX_Comm comm);

#endif
