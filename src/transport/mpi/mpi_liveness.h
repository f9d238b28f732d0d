/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_liveness.h - how ranks without shared memory tell each other that they live, and that the
 * communicator is over. It calls MPI, so threads of the library must not call it.
 */
#ifndef EPX_TRANSPORT_MPI_MPI_LIVENESS_H
#define EPX_TRANSPORT_MPI_MPI_LIVENESS_H

#include "core/comm.h"

struct epx_mpi_liveness;

/* Local. */
int epx_mpi_liveness_create(struct epx_comm *comm, struct epx_mpi_liveness **liveness);
void epx_mpi_liveness_free(struct epx_mpi_liveness *liveness);

/* The operations on a struct epx_mpi_liveness. */
extern const struct epx_liveness_ops epx_mpi_liveness_ops;
int epx_mpi_liveness_beat(struct epx_mpi_liveness *liveness, uint64_t position, char *message);
void epx_mpi_liveness_announce(struct epx_mpi_liveness *liveness, const char *message);

/*
 * Whom to blame. suspects[R] marks the ranks that may be to blame; `first`, one of them, may itself
 * only be kept waiting. Asks all ranks: returns `first` if it does not answer or all suspects do,
 * else a suspect that does not answer within a moment. Returns -1 if the communicator has ended
 * meanwhile; message then says why.
 */
int epx_mpi_liveness_blame(struct epx_mpi_liveness *liveness, int first, const char *suspects,
                           char *message);

#endif
