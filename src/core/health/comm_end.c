/* SPDX-License-Identifier: BSD-3-Clause */
/* comm_end.c - how a communicator ends: by what this rank has seen, or was told. */
#include "core/health/comm_end.h"

#include <stdio.h>

#include "base/clock.h"
#include "core/request.h"

enum { GRACE_MS = 5000 };

const struct epx_liveness *epx_comm_liveness(const struct epx_comm *comm)
{
    return comm->birth.ops ? &comm->birth : &comm->liveness;
}

void epx_comm_describe_silence(const struct epx_comm *comm, const char *operation, int culprit,
                               char *message)
{
    snprintf(message, EPX_MAX_ERROR_STRING, "%s: rank %d did not answer within %lld ms", operation,
             culprit, (long long)comm->params.timeout_ms);
}

/* tests/model/comm_end.pml has how all survivors come to one message. */
void epx_comm_finish(struct epx_comm *comm, const char *message)
{
    if (comm->finished)
        return;
    comm->finished = EPX_ERR_TIMEOUT;
    comm->finished_ns = epx_now_ns();
    epx_comm_note_error(comm, EPX_ERR_TIMEOUT, message);
    snprintf(comm->finish_message, sizeof(comm->finish_message), "%s", message);
    snprintf(comm->message, sizeof(comm->message), "%s", message);
    EPX_LOG_ERROR("%s; the communicator is finished", message);
}

/*
 * Whether a request of a finished communicator may complete. Its kernels end soon, and may store
 * into the user's buffers until then. A kernel that has not ended after the grace period has not
 * begun: when it begins, it sees the end first and stores nothing.
 */
static int is_over(const struct epx_comm *comm, const struct epx_request *request)
{
    int64_t grace_ms = epx_shorter_ms(GRACE_MS, comm->params.timeout_ms);

    if (!request->ended || request->ended(request))
        return 1;
    return epx_deadline_is_over(comm->finished_ns + grace_ms * EPX_NS_PER_MS);
}

void epx_comm_drain_finished(struct epx_comm *comm)
{
    epx_request_queue_rest(comm->last); /* which ends at once: its kernels see the end */
    while (comm->first && is_over(comm, comm->first)) {
        epx_fail_quietly(comm->finished, comm->finish_message);
        comm->stats.timeouts++;
        epx_request_complete(comm->first, comm->finished);
    }
}

void epx_comm_give_up(struct epx_comm *comm, const char *message)
{
    const struct epx_liveness *liveness = epx_comm_liveness(comm);
    char first[EPX_MAX_ERROR_STRING];

    snprintf(first, sizeof(first), "%s", message);
    if (liveness->ops)
        liveness->ops->announce(liveness->state, first);
    epx_comm_finish(comm, first);
    epx_comm_drain_finished(comm);
}

void epx_comm_listen(struct epx_comm *comm, const struct epx_liveness *liveness)
{
    char message[EPX_MAX_ERROR_STRING];

    if (!comm->finished && liveness->ops &&
        liveness->ops->beat(liveness->state, comm->position, message))
        epx_comm_finish(comm, message);
}

/* The peers are heard first, as they may know better why the communicator ends. */
void epx_comm_hear(struct epx_comm *comm)
{
    const struct epx_control *control = &comm->control;
    const struct epx_liveness *liveness = epx_comm_liveness(comm);
    char message[EPX_MAX_ERROR_STRING];
    int moves = control->ops && control->ops->pass, rank;

    if (moves && !comm->finished)
        control->ops->pass(control->state, comm->awaited || comm->birth.ops);
    epx_comm_listen(comm, &comm->liveness);
    if (!moves || comm->finished)
        return;
    if (control->ops->told(control->state, message)) {
        epx_comm_give_up(comm, message);
        return;
    }
    rank = control->ops->lost(control->state, message);
    if (rank < 0)
        return;
    if (liveness->ops && liveness->ops->blame)
        liveness->ops->blame(liveness->state, rank);
    epx_comm_give_up(comm, message);
}
