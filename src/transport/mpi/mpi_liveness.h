/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_liveness.h - how ranks without shared memory tell each other that they live, and that the
 * communicator is over. Calls MPI: not for threads of the library.
 */
#ifndef EPX_TRANSPORT_MPI_MPI_LIVENESS_H
#define EPX_TRANSPORT_MPI_MPI_LIVENESS_H

#include "core/comm.h"

struct epx_mpi_liveness;

/* Local. */
int epx_mpi_liveness_create(struct epx_comm *comm, struct epx_mpi_liveness **liveness);
void epx_mpi_liveness_free(struct epx_mpi_liveness *liveness);

/* On a struct epx_mpi_liveness. */
extern const struct epx_liveness_ops epx_mpi_liveness_ops;
int epx_mpi_liveness_beat(struct epx_mpi_liveness *liveness, uint64_t position, char *message);
void epx_mpi_liveness_announce(struct epx_mpi_liveness *liveness, const char *message);

/*
 * Who is to blame, given the first suspect, who may only be kept waiting, and all of them, [R]:
 * asks the ranks, and if the first answers and another suspect does not within a moment, that one.
 * -1 if the communicator has ended meanwhile: message says why.
 */
int epx_mpi_liveness_blame(struct epx_mpi_liveness *liveness, int first, const char *suspects,
                           char *message);

#endif
