/* SPDX-License-Identifier: BSD-3-Clause */
/* patience.c - measures how long a wait lasts, and finds out whom it is for. */
#include "core/health/patience.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "core/health/comm_end.h"
#include "core/request.h"

enum { WATCHED_MS = 100, ANSWER_MS = 200, LOOKS_BEFORE_BLAME = 32 };

static const char *current_operation(const struct epx_comm *comm)
{
    const char *function = epx_status_function();

    if (comm->first)
        return epx_verb_name(comm->first->call.verb);
    return function ? function : "EPX";
}

/* Asks all ranks who lives, for this clock. Several clocks may ask, and a probe forgets the answers
 * to the question before it, so those are noted in comm->answers first. */
static void ask_who_is_alive(struct epx_comm *comm, struct epx_clock *clock)
{
    const struct epx_liveness *liveness = epx_comm_liveness(comm);
    uint64_t epoch;

    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && liveness->ops->answered(liveness->state, r, &epoch))
            comm->answers[r] = comm->questions;
    clock->question = ++comm->questions;
    liveness->ops->probe(liveness->state);
}

static int is_alive(const struct epx_comm *comm, const struct epx_clock *clock, int rank,
                    uint64_t *epoch)
{
    return comm->liveness.ops->answered(comm->liveness.state, rank, epoch) ||
           comm->answers[rank] >= clock->question;
}

/* The rank to blame: a silent one, else the one furthest behind, else the one waited for. */
static int find_culprit(const struct epx_comm *comm, const struct epx_clock *clock, int waiting_for)
{
    const struct epx_liveness *liveness = epx_comm_liveness(comm);
    uint64_t epoch, least = comm->position;
    int culprit = waiting_for;

    if (liveness->ops->culprit)
        return liveness->ops->culprit(liveness->state);
    for (int i = 0; i < comm->size; i++) {
        int rank = (i + (waiting_for < 0 ? 0 : waiting_for)) % comm->size;

        if (rank == comm->rank)
            continue;
        if (!is_alive(comm, clock, rank, &epoch))
            return rank;
        if (epoch < least) {
            least = epoch;
            culprit = rank;
        }
    }
    return culprit;
}

static void blame(struct epx_comm *comm, const struct epx_clock *clock, int waiting_for)
{
    char message[EPX_MAX_ERROR_STRING];
    const struct epx_liveness *liveness = epx_comm_liveness(comm);
    int culprit = waiting_for;
    long long timeout_ms = (long long)comm->params.timeout_ms;

    if (liveness->ops)
        culprit = find_culprit(comm, clock, waiting_for);
    if (culprit >= 0)
        epx_comm_describe_silence(comm, current_operation(comm), culprit, message);
    else
        snprintf(message, sizeof(message), "%s: not all %d ranks came within %lld ms",
                 current_operation(comm), comm->size, timeout_ms);
    epx_comm_give_up(comm, message);
}

/*
 * Whether this host looked for answers often enough: MPI takes several passes to read what came by
 * the network. A host that calls EPX rarely makes its missing looks in one go after twice the
 * timeout.
 */
static int has_looked(struct epx_comm *comm, struct epx_clock *clock, int64_t bound)
{
    if (clock->looks <= LOOKS_BEFORE_BLAME && clock->waited_ns < 2 * bound)
        return 0;
    for (; clock->looks <= LOOKS_BEFORE_BLAME; clock->looks++) {
        epx_comm_listen(comm, &comm->birth);
        epx_comm_listen(comm, &comm->liveness);
    }
    return !comm->finished;
}

/*
 * The rank that a long wait is for: the one that the operation names, or that the kernels wait for,
 * or, where messages tell nothing, one that does not answer or is behind. Returns 0 while answers
 * are awaited; *rank is -1 if none is known.
 */
static int find_awaited(struct epx_comm *comm, struct epx_clock *clock, int *rank)
{
    const struct epx_liveness *liveness = epx_comm_liveness(comm);

    if (*rank >= 0 || !liveness->ops)
        return 1;
    if (liveness->ops->behind) {
        *rank = liveness->ops->behind(liveness->state);
        return 1;
    }
    if (!clock->warn_asked_ns) {
        ask_who_is_alive(comm, clock);
        clock->warn_asked_ns = clock->watched_ns;
    }
    if (clock->watched_ns < clock->warn_asked_ns + ANSWER_MS * EPX_NS_PER_MS)
        return 0;
    *rank = find_culprit(comm, clock, -1);
    return 1;
}

/* Says once in a wait for whom it waits. */
static void warn(struct epx_comm *comm, struct epx_clock *clock, int waiting_for)
{
    long long warn_ms = (long long)comm->params.warn_ms;

    if (!warn_ms || clock->warned || clock->watched_ns < warn_ms * EPX_NS_PER_MS ||
        !find_awaited(comm, clock, &waiting_for))
        return;
    clock->warned = 1;
    if (waiting_for >= 0)
        EPX_LOG_WARN("%s: has waited more than %lld ms for rank %d", current_operation(comm),
                     warn_ms, waiting_for);
    else
        EPX_LOG_WARN("%s: not through after %lld ms", current_operation(comm), warn_ms);
}

/*
 * Adds the time since the last pass. Of a long gap, in which this host was busy elsewhere, at most
 * half the timeout counts as waited, and a little as watched.
 */
static void measure(const struct epx_comm *comm, struct epx_clock *clock)
{
    int64_t bound = comm->params.timeout_ms * EPX_NS_PER_MS, most = WATCHED_MS * EPX_NS_PER_MS;
    int64_t now = epx_now_ns(), gap = clock->last_pass_ns ? now - clock->last_pass_ns : 0;

    clock->last_pass_ns = now;
    clock->waited_ns += gap < bound / 2 ? gap : bound / 2;
    clock->watched_ns += gap < most ? gap : most;
}

void epx_comm_clock(struct epx_comm *comm, struct epx_clock *clock, int moved, int waiting_for)
{
    int64_t bound = comm->params.timeout_ms * EPX_NS_PER_MS;

    if (moved || comm->finished) {
        memset(clock, 0, sizeof(*clock));
        return;
    }
    measure(comm, clock);
    warn(comm, clock, waiting_for);
    if (!bound || clock->waited_ns < bound / 2)
        return;
    if (clock->looks++ == 0 && epx_comm_liveness(comm)->ops)
        ask_who_is_alive(comm, clock);
    else if (clock->waited_ns >= bound && has_looked(comm, clock, bound))
        blame(comm, clock, waiting_for);
}

void epx_comm_watch(struct epx_comm *comm)
{
    measure(comm, &comm->clock);
    warn(comm, &comm->clock, -1);
}
