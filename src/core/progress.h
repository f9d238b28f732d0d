/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.h - moves the queues on. */
#ifndef EPX_CORE_PROGRESS_H
#define EPX_CORE_PROGRESS_H

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

/* Progresses until nothing is in flight. */
void epx_comm_drain(struct epx_comm *comm);

/* The thread of the hint epx_progress=thread. watches: the GPU moves the queue on, and the thread
 * looks every millisecond how far that is, and who is gone. */
int epx_comm_start_thread(struct epx_comm *comm, int watches);
void epx_comm_stop_thread(struct epx_comm *comm);

#endif
