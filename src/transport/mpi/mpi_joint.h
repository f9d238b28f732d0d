/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_joint.h - collectives of MPI that are waited for as those of the control plane are. */
#ifndef EPX_TRANSPORT_MPI_MPI_JOINT_H
#define EPX_TRANSPORT_MPI_MPI_JOINT_H

#include "core/comm.h"

/* Collective, bounded: duplicates by a nonblocking call, so that a rank that never comes is
 * noticed. A failure ends the communicator. */
int epx_mpi_duplicate(struct epx_comm *comm, MPI_Comm original, MPI_Comm *copy);

#endif
