/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * letter_liveness.h - how ranks without shared memory tell each other that they live, and that the
 * communicator is over. Where MPI makes the control plane it calls MPI, so threads of the library
 * must not call it.
 */
#ifndef EPX_CORE_LETTER_LIVENESS_H
#define EPX_CORE_LETTER_LIVENESS_H

#include "core/comm.h"

struct epx_letter_liveness;

/* Local. */
int epx_letter_liveness_create(struct epx_comm *comm, struct epx_letter_liveness **liveness);
void epx_letter_liveness_free(struct epx_letter_liveness *liveness);

struct epx_liveness epx_letter_liveness_of(struct epx_letter_liveness *liveness);
int epx_letter_liveness_beat(struct epx_letter_liveness *liveness, uint64_t position,
                             char *message);
void epx_letter_liveness_announce(struct epx_letter_liveness *liveness, const char *message);

/*
 * Whom to blame. suspects[R] marks the ranks that may be to blame; `first`, one of them, may itself
 * only be kept waiting. Asks all ranks: returns `first` if it does not answer or all suspects do,
 * else a suspect that does not answer within a moment. Returns -1 if the communicator has ended
 * meanwhile; message then says why.
 */
int epx_letter_liveness_blame(struct epx_letter_liveness *liveness, int first, const char *suspects,
                              char *message);

#endif
