/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_liveness.h - how ranks without shared memory tell each other that they live, and that the
 * communicator is over. Calls MPI: not for threads of the library.
 */
#ifndef EPX_TRANSPORT_MPI_MPI_LIVENESS_H
#define EPX_TRANSPORT_MPI_MPI_LIVENESS_H

#include "core/comm.h"

struct epx_letters;

/* Local. */
int epx_letters_create(struct epx_comm *comm, struct epx_letters **letters);
void epx_letters_free(struct epx_letters *letters);

/* As the operations of struct epx_liveness_ops. */
int epx_letters_beat(struct epx_letters *letters, uint64_t position, char *message);
void epx_letters_probe(struct epx_letters *letters);
int epx_letters_answered(const struct epx_letters *letters, int rank, uint64_t *position);
void epx_letters_announce(struct epx_letters *letters, const char *message);

/*
 * Who is to blame, given the first suspect, who may only be kept waiting, and all of them, [R]:
 * asks the ranks, and if the first answers and another suspect does not within a moment, that one.
 * -1 if the communicator has ended meanwhile: message says why.
 */
int epx_letters_blame(struct epx_letters *letters, int first, const char *suspects, char *message);

#endif
