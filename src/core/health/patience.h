/* SPDX-License-Identifier: BSD-3-Clause */
/* patience.h - how long a wait lasts, and whom it is for. */
#ifndef EPX_CORE_HEALTH_PATIENCE_H
#define EPX_CORE_HEALTH_PATIENCE_H

#include "core/comm.h"

/*
 * The clock of a wait: call it after each pass, with the lock held. When epx_timeout_ms have passed
 * without progress, it finds out who is silent and ends the communicator.
 */
void epx_comm_clock(struct epx_comm *comm, struct epx_clock *clock, int moved, int waiting_for);

/* The wait of an operation whose kernels have the clock that counts: only warns. */
void epx_comm_watch(struct epx_comm *comm);

#endif
