/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.h - who moves the queues on, for how long it waits, and how it gives up. */
#ifndef EPX_CORE_PROGRESS_H
#define EPX_CORE_PROGRESS_H

#include "base/clock.h"
#include "core/request.h"

/* Starts the request behind the earlier ones of its communicator; on error frees it. */
int epx_request_submit(struct epx_request *request);

/* One pass over the queues of all communicators; returns whether anything moved. */
int epx_progress(void);
/* Lets other processes run after a number of passes in which nothing moved. */
void epx_progress_pause(int idle_passes);

/* The routing of the numbered route failed on all ranks: so will the operations on it. */
void epx_route_spoil(struct epx_comm *comm, int64_t id, int error);

/* Ends the communicator on all ranks: everything in flight and everything later fails. */
void epx_comm_give_up(struct epx_comm *comm, const char *message);

/* Local: the communicator is over, as all ranks learn in their own ways. */
void epx_comm_finish(struct epx_comm *comm, const char *message);
/* The message of EPX_MAX_ERROR_STRING bytes about a rank that did not answer in time. */
void epx_comm_describe_silence(const struct epx_comm *comm, const char *operation, int culprit,
                               char *message);
/* Completes what is in flight. */
void epx_comm_drain(struct epx_comm *comm);

/*
 * The clock of a wait: call it after each pass, with the lock held. When epx_timeout_ms have
 * gone by without progress it finds out who is silent and ends the communicator.
 */
void epx_comm_clock(struct epx_comm *comm, struct epx_clock *clock, int moved, int waiting_for);

/* The thread of the hint epx_progress=thread. */
int epx_comm_start_thread(struct epx_comm *comm);
void epx_comm_stop_thread(struct epx_comm *comm);

#endif
