/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_liveness.c - the end of a communicator on device memory. Kernels that wait decide it in
 * the abort word, protocol.cuh says how; the host takes part in three ways:
 *
 *   an operation ends with it        epx_device_note_abort
 *   nothing is in flight here        beat: copies the word, now and then
 *   the host itself gives up         announce: a kernel of one warp decides the word as others do,
 *                                    after the reason was put where the other ranks' hosts find it
 *
 * Where ranks exchange messages each rank has an abort word of its own, and hosts tell each other
 * of the end by the letters of letter_liveness.c. So all ranks report the first reason. Kernels
 * that are queued see the word and end without storing; only then do their requests complete. All
 * CUDA calls are on the library's own stream, which has the highest priority and in which nothing
 * waits for another rank.
 */
#include "coll/device/device_liveness.h"
#include "base/clock.h"
#include "base/jitter.h"
#include "coll/device/staged/proxy.h"
#include "core/health/comm_end.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"
#include "core/letter_liveness.h"
#include "kernels/args/control_args.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { POLLS_BEFORE_QUERY = 1 << 16, LOOK_EVERY_MS = 5, COPY_MS = 500, ANNOUNCE_MS = 200 };

static uint64_t load_word(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static cudaError_t queue_copy(struct epx_device *device, void *to, const void *from, size_t bytes)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, device->stream);

    if (error == cudaSuccess)
        error = cudaEventRecord(device->copied, device->stream);
    if (error != cudaSuccess)
        cudaGetLastError();
    return error;
}

static int await_copy(struct epx_device *device)
{
    int64_t end = epx_deadline_in(COPY_MS);
    cudaError_t error;

    while ((error = epx_device_query(device->copied)) == cudaErrorNotReady &&
           !epx_deadline_is_over(end))
        sched_yield();
    return error == cudaSuccess;
}

int epx_device_copy(struct epx_device *device, void *to, const void *from, size_t bytes)
{
    struct epx_device_scope scope;
    int arrived;

    if (epx_device_enter(device->ordinal, &scope) != cudaSuccess)
        return 0;
    arrived = queue_copy(device, to, from, bytes) == cudaSuccess && await_copy(device);
    epx_device_leave(&scope);
    return arrived;
}

/* Why this rank gave up: the proxy's reason, if it failed (it tells only kernels), else the
 * host's. */
static const char *own_reason(const struct epx_device *device)
{
    const char *failure = epx_proxy_failure(device->proxy);

    return failure ? failure : device->notes->reason;
}

/* Describes why the host of `rank` gave up, as that host wrote it into its control window. */
static void describe_reason(struct epx_device *device, int rank, char *message)
{
    struct epx_device_notes *notes = device->notes;
    const char *reason = own_reason(device);
    char *control = device->window->address[rank];

    if (rank != device->comm->rank) {
        reason = notes->peer_reason;
        if (!epx_device_copy(device, notes->peer_reason,
                             epx_control_reason(control, device->comm->size),
                             sizeof(notes->peer_reason)))
            snprintf(notes->peer_reason, sizeof(notes->peer_reason), "rank %d gave up", rank);
    }
    snprintf(message, EPX_MAX_ERROR_STRING, "%.*s", EPX_MAX_ERROR_STRING - 1, reason);
}

/* Asks the hosts whom to blame. Where ranks exchange messages, kernels blame a rank that is behind,
 * but it may only wait for a dead rank, which is as far behind: all of these are suspects. */
static int blame(struct epx_device *device, int rank, char *message)
{
    char suspects[EPX_MOST_DEVICE_RANKS] = {0};
    uint64_t *arrived = device->notes->arrived;
    int size = device->comm->size;

    suspects[rank] = 1;
    if (epx_device_copy(device, arrived, epx_control_arrived(device->window->own, 0),
                        (size_t)size * sizeof(*arrived)))
        for (int r = 0; r < size; r++)
            suspects[r] = arrived[r] <= arrived[rank];
    return epx_letter_liveness_blame(device->letters, rank, suspects, message);
}

static void describe_abort(struct epx_device *device, uint64_t word, char *message)
{
    int rank = (int)(uint32_t)word - 1, verb = (int)(uint32_t)(word >> 32);

    if (verb == EPX_ABORT_BY_HOST) {
        describe_reason(device, rank, message);
        return;
    }
    if (device->letters)
        rank = blame(device, rank, message);
    if (rank >= 0)
        epx_comm_describe_silence(device->comm, epx_verb_name((enum epx_verb)verb), rank, message);
}

void epx_device_note_abort(struct epx_device *device, const struct epx_outcome *outcome)
{
    uint64_t word = (uint64_t)outcome->a << 32 | (uint32_t)(outcome->rank + 1);
    char message[EPX_MAX_ERROR_STRING];

    if (device->comm->finished)
        return;
    describe_abort(device, word, message);
    epx_comm_finish(device->comm, message);
    if (device->letters)
        epx_letter_liveness_announce(device->letters, message);
}

/* Starts a copy of the abort word to notes; until the copy has come the word is unknown. */
static void look(struct epx_device *device)
{
    struct epx_device_scope scope;

    if (epx_device_enter(device->ordinal, &scope) != cudaSuccess)
        return;
    __atomic_store_n(&device->notes->abort, EPX_ABORT_UNKNOWN, __ATOMIC_RELEASE);
    if (queue_copy(device, &device->notes->abort, device->window->own, sizeof(uint64_t)))
        __atomic_store_n(&device->notes->abort, 0, __ATOMIC_RELEASE);
    epx_device_leave(&scope);
}

/* Whether to copy the abort word now. While operations are in flight that is seldom: their kernels
 * see the word and end. */
static int is_time_to_look(struct epx_device *device)
{
    if (device->comm->first && ++device->passes % POLLS_BEFORE_QUERY)
        return 0;
    if (!epx_deadline_is_over(device->next_look_ns))
        return 0;
    device->next_look_ns = epx_deadline_in(LOOK_EVERY_MS);
    return 1;
}

static int beat(void *state, uint64_t position, char *message)
{
    struct epx_device *device = state;
    uint64_t word = load_word(&device->notes->abort);

    if (device->letters && epx_letter_liveness_beat(device->letters, position, message)) {
        epx_proxy_stop_kernels(device->proxy);
        return 1;
    }
    if (word == EPX_ABORT_UNKNOWN)
        return 0;
    if (word == 0) {
        if (is_time_to_look(device))
            look(device);
        return 0;
    }
    describe_abort(device, word, message);
    if (device->letters)
        epx_letter_liveness_announce(device->letters, message);
    return 1;
}

/* Asks nobody: a host that waits for hosts has no way to ask them, so nobody is blamed. */
static void probe(void *state)
{
    (void)state;
}

static int answered(void *state, int rank, uint64_t *position)
{
    (void)state;
    (void)rank;
    *position = UINT64_MAX;
    return 1;
}

static uint64_t await_verdict(const struct epx_device_notes *notes)
{
    int64_t end = epx_deadline_in(ANNOUNCE_MS);

    while (load_word(&notes->verdict) == 0 && !epx_deadline_is_over(end))
        sched_yield();
    return load_word(&notes->verdict);
}

static int queue_announcement(struct epx_device *device)
{
    struct epx_announce_end args = {.reason = device->notes->reason,
                                    .verdict = &device->notes->verdict};

    args.comm.rank = device->comm->rank;
    args.comm.num_ranks = device->comm->size;
    args.comm.control = device->control;
    args.comm.state = device->state;
    args.comm.jitter_seed = epx_jitter_seed();
    EPX_TRY_LAUNCH(epx_launch_announce_end(&args, device->stream));
    return EPX_SUCCESS;
}

/* Ends the communicator from the host. If the GPU is too busy for a warp, the kernels that wait end
 * by their own clocks. */
static void announce(void *state, char *message)
{
    struct epx_device *device = state;
    struct epx_device_notes *notes = device->notes;
    struct epx_device_scope scope;
    uint64_t word = 0;

    if (device->comm->finished || epx_device_enter(device->ordinal, &scope) != cudaSuccess)
        return;
    if (device->letters)
        epx_letter_liveness_announce(device->letters, message);
    snprintf(notes->reason, sizeof(notes->reason), "%s", message);
    if (queue_announcement(device) == EPX_SUCCESS)
        word = await_verdict(notes);
    if (word)
        describe_abort(device, word, message);
    epx_device_leave(&scope);
}

/* The number of the last operation that a rank began, as the copied ready words tell. */
static uint64_t begun(const struct epx_device *device, int rank)
{
    const uint64_t *ready = device->notes->ready;
    uint64_t even = ready[rank * EPX_READY_WORDS] >> 32;
    uint64_t odd = ready[(device->comm->size + rank) * EPX_READY_WORDS] >> 32;

    return even > odd ? even : odd;
}

static int is_behind(const struct epx_device *device, int rank, int other)
{
    const uint64_t *arrived = device->notes->arrived;

    if (begun(device, rank) != begun(device, other))
        return begun(device, rank) < begun(device, other);
    return arrived[rank] < arrived[other];
}

static int copy_positions(struct epx_device *device)
{
    size_t ranks = (size_t)device->comm->size;
    char *own = device->window->own;

    return epx_device_copy(device, device->notes->arrived, epx_control_arrived(own, 0),
                           ranks * sizeof(uint64_t)) &&
           epx_device_copy(device, device->notes->ready,
                           epx_control_ready(own, device->comm->size, 0, 0),
                           2 * ranks * EPX_READY_WORDS * sizeof(uint64_t));
}

/* The rank furthest behind this one; -1 if all came as far, so that the GPU itself is late. */
static int behind(void *state)
{
    struct epx_device *device = state;
    int last = device->comm->rank;

    if (!copy_positions(device))
        return -1;
    for (int r = 0; r < device->comm->size; r++)
        if (is_behind(device, r, last))
            last = r;
    return last == device->comm->rank ? -1 : last;
}

const struct epx_liveness_ops epx_device_liveness = {
    .beat = beat,
    .probe = probe,
    .answered = answered,
    .announce = announce,
    .behind = behind,
};

int epx_device_check(const struct epx_device *device, struct epx_request *request)
{
    struct epx_device_scope scope;
    cudaError_t error;

    if (++request->polls % POLLS_BEFORE_QUERY)
        return EPX_SUCCESS;
    EPX_TRY_CUDA(epx_device_enter(device->ordinal, &scope));
    error = cudaEventRecord(device->copied, device->stream);
    if (error == cudaSuccess)
        error = epx_device_query(device->copied);
    epx_device_leave(&scope);
    if (error == cudaSuccess || error == cudaErrorNotReady)
        return EPX_SUCCESS;
    return epx_fail_cuda(error, "an operation in flight");
}

/* Nobody knows how far the operation was queued, so the ranks would be out of step. */
int epx_device_end_halfway(struct epx_device *device, int rc)
{
    enum { ROOM_FOR_RANK = 48 };
    char message[EPX_MAX_ERROR_STRING];

    snprintf(message, sizeof(message), "%.*s (in the middle of the operation, on rank %d)",
             EPX_MAX_ERROR_STRING - ROOM_FOR_RANK, epx_status_message(), device->comm->rank);
    epx_comm_give_up(device->comm, message);
    return epx_fail_quietly(rc, message);
}
