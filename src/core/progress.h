/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.h - moves the queues on, measures how long a wait lasts, and ends a communicator. */
#ifndef EPX_CORE_PROGRESS_H
#define EPX_CORE_PROGRESS_H

#include "base/clock.h"
#include "core/request.h"

/* Starts the request behind the earlier ones of its communicator; on error frees it. */
int epx_request_submit(struct epx_request *request);

/* One pass over the queues of all communicators; returns whether anything moved. Of those that have
 * none, some take their turn to hear of their end. */
int epx_progress(void);
/* The part of a pass that is this communicator's; call it with the lock held. */
int epx_progress_comm(struct epx_comm *comm);

/* Tells routes that the routing of route `id` failed on all ranks: operations on it will fail as
 * well. */
void epx_route_spoil(struct epx_comm *comm, int64_t id, int error);

/* Ends the communicator on all ranks: everything in flight and everything later fails. */
void epx_comm_give_up(struct epx_comm *comm, const char *message);

/* Local: finishes the communicator on this rank; every other rank learns of the end by its own
 * means. */
void epx_comm_finish(struct epx_comm *comm, const char *message);
/* Writes the message, of EPX_MAX_ERROR_STRING bytes, about a rank that did not answer in time. */
void epx_comm_describe_silence(const struct epx_comm *comm, const char *operation, int culprit,
                               char *message);
/* Progresses until nothing is in flight. */
void epx_comm_drain(struct epx_comm *comm);

/*
 * The clock of a wait: call it after each pass, with the lock held. When epx_timeout_ms have passed
 * without progress, it finds out who is silent and ends the communicator.
 */
void epx_comm_clock(struct epx_comm *comm, struct epx_clock *clock, int moved, int waiting_for);

/* The thread of the hint epx_progress=thread. */
int epx_comm_start_thread(struct epx_comm *comm);
void epx_comm_stop_thread(struct epx_comm *comm);

#endif
