/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * agree.c - bounded blocking collectives of the library itself. What MPI reads and writes lies in
 * the communicator's agreement, not on the stack: a collective that is given up may still complete
 * later, and a communicator that gave up is buried, never freed.
 */
#include "core/agree.h"

#include <stdio.h>
#include <string.h>

#include "base/pause.h"
#include "core/health/comm_end.h"
#include "core/health/patience.h"
#include "core/progress.h"

int epx_comm_break(struct epx_comm *comm, int rc)
{
    char message[EPX_MAX_ERROR_STRING];

    epx_status_locate(comm->rank, message);
    epx_lock();
    epx_comm_give_up(comm, message);
    epx_unlock();
    return epx_fail_quietly(rc, message);
}

static void count_waiting(struct epx_comm *comm, int change)
{
    epx_lock();
    comm->awaited += change;
    epx_comm_relist(comm);
    epx_unlock();
}

static int await(struct epx_comm *comm, struct epx_joint joint)
{
    struct epx_clock clock = {0};
    int done = 0, idle = 0;

    for (;;) {
        int finished, moved, awaited = -1;
        int rc = joint.done(joint.state, &done, &awaited);

        if (rc != EPX_SUCCESS)
            return epx_comm_break(comm, rc);
        if (done)
            return EPX_SUCCESS;
        epx_lock();
        moved = epx_progress();
        epx_comm_clock(comm, &clock, 0, awaited);
        finished = comm->finished;
        epx_unlock();
        if (finished)
            return epx_fail_quietly(finished, comm->finish_message);
        idle = moved ? 0 : idle + 1;
        epx_pause(idle);
    }
}

int epx_comm_await(struct epx_comm *comm, struct epx_joint joint)
{
    int rc;

    count_waiting(comm, 1);
    rc = await(comm, joint);
    count_waiting(comm, -1);
    return rc;
}

static int collective_is_done(void *state, int *done, int *awaited)
{
    const struct epx_control *control = state;

    int rc;

    (void)awaited;
    epx_lock();
    rc = control->ops->done(control->state, done);
    epx_unlock();
    return rc;
}

/* Waits for the collective of the control plane that was started, unless that failed. */
static int finish(struct epx_comm *comm, int rc)
{
    if (rc != EPX_SUCCESS)
        return epx_comm_break(comm, rc);
    return epx_comm_await(comm, (struct epx_joint){collective_is_done, &comm->control});
}

static int check_alive(struct epx_comm *comm)
{
    int finished;

    epx_lock();
    finished = comm->finished;
    epx_unlock();
    return finished ? epx_fail_quietly(finished, comm->finish_message) : EPX_SUCCESS;
}

int epx_comm_pass(struct epx_comm *comm)
{
    epx_lock();
    epx_progress();
    epx_unlock();
    return check_alive(comm);
}

static int allreduce(struct epx_comm *comm, int n, enum epx_fold fold)
{
    const struct epx_control *control = &comm->control;

    EPX_TRY(check_alive(comm));
    return finish(comm, control->ops->allreduce(control->state, comm->agreement.value, n, fold));
}

static int bcast(struct epx_comm *comm, void *data, int bytes, int root)
{
    const struct epx_control *control = &comm->control;

    return finish(comm, control->ops->bcast(control->state, data, bytes, root));
}

/* The least of all ranks is the error that they agree on, that of the lowest rank; but an
 * EPX_ERR_TIMEOUT, which another rank's error may have brought about, comes behind all others. */
static int64_t precedence(const struct epx_comm *comm, int rc)
{
    int64_t size = comm->size;

    return rc == EPX_SUCCESS ? 2 * size : rc == EPX_ERR_TIMEOUT ? size + comm->rank : comm->rank;
}

int epx_comm_agree(struct epx_comm *comm, int rc)
{
    struct epx_agreement *agreement = &comm->agreement;

    agreement->code = rc;
    snprintf(agreement->message, sizeof(agreement->message), "%s", epx_status_message());
    agreement->value[0] = precedence(comm, rc);
    EPX_TRY(allreduce(comm, 1, EPX_FOLD_MIN));
    if (agreement->value[0] == precedence(comm, EPX_SUCCESS))
        return EPX_SUCCESS;
    EPX_TRY(bcast(comm, agreement, (int)offsetof(struct epx_agreement, value),
                  (int)(agreement->value[0] % comm->size)));
    return epx_fail_quietly(agreement->code, agreement->message);
}

int epx_comm_agree_aloud(struct epx_comm *comm, int rc)
{
    int agreed = epx_comm_agree(comm, rc);

    if (rc != EPX_SUCCESS && comm->agreement.value[0] % comm->size == comm->rank)
        EPX_LOG_ERROR("%s", comm->agreement.message);
    return agreed;
}

int epx_comm_fail(const struct epx_comm *comm, int code, const char *format, ...)
{
    va_list values;

    epx_attempt_begin();
    va_start(values, format);
    epx_fail_list(code, format, values);
    va_end(values);
    return epx_attempt_end(code, comm->rank != 0);
}

/* The least and the largest value of all ranks. */
static int find_ends(struct epx_comm *comm, int64_t value, int64_t *least, int64_t *most)
{
    int64_t *ends = comm->agreement.value;

    ends[0] = value;
    ends[1] = ~value;
    EPX_TRY(allreduce(comm, 2, EPX_FOLD_MAX));
    *least = ~ends[1];
    *most = ends[0];
    return EPX_SUCCESS;
}

int epx_comm_equal(struct epx_comm *comm, int64_t value, int *equal)
{
    int64_t least, most;

    EPX_TRY(find_ends(comm, value, &least, &most));
    *equal = least == most;
    return EPX_SUCCESS;
}

int epx_comm_same(struct epx_comm *comm, const char *name, int64_t value)
{
    return epx_comm_same_word(comm, name, value, NULL);
}

int epx_comm_same_word(struct epx_comm *comm, const char *name, int64_t value,
                       const char *const *words)
{
    int64_t least, most;

    EPX_TRY(find_ends(comm, value, &least, &most));
    if (least == most)
        return EPX_SUCCESS;
    EPX_FAIL_IF(words, EPX_ERR_ARG, "%s differs across ranks: %s here, %s on one, %s on another",
                name, words[value], words[least], words[most]);
    return epx_fail(EPX_ERR_ARG, "%s differs across ranks: %lld here, from %lld to %lld", name,
                    (long long)value, (long long)least, (long long)most);
}

int epx_comm_max(struct epx_comm *comm, int64_t value, int64_t *max)
{
    comm->agreement.value[0] = value;
    EPX_TRY(allreduce(comm, 1, EPX_FOLD_MAX));
    *max = comm->agreement.value[0];
    return EPX_SUCCESS;
}

int epx_comm_allgather(struct epx_comm *comm, int64_t value, int64_t *values)
{
    struct epx_agreement *agreement = &comm->agreement;

    agreement->value[0] = value;
    EPX_TRY(
        epx_comm_allgather_bytes(comm, agreement->value, (int)sizeof(value), agreement->gathered));
    if (values)
        memmove(values, agreement->gathered, (size_t)comm->size * sizeof(*values));
    return EPX_SUCCESS;
}

int epx_comm_allgather_bytes(struct epx_comm *comm, const void *own, int bytes, void *all)
{
    const struct epx_control *control = &comm->control;

    EPX_TRY(check_alive(comm));
    return finish(comm, control->ops->allgather(control->state, own, bytes, all));
}

int epx_comm_bcast(struct epx_comm *comm, void *data, int bytes)
{
    char *message = comm->agreement.message;

    EPX_TRY(check_alive(comm));
    memcpy(message, data, (size_t)bytes);
    EPX_TRY(bcast(comm, message, bytes, 0));
    memcpy(data, message, (size_t)bytes);
    return EPX_SUCCESS;
}
