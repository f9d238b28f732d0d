/* SPDX-License-Identifier: BSD-3-Clause */
/* transport_shm.c - ranks of one node store into each other's POSIX shared memory. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jitter.h"
#include "core/agree.h"
#include "transport/shm/node_window.h"
#include "transport/transport.h"

/*
 * Life and death. Each rank's part of the life window:
 *   beats, position   written by its owner at every pass, read by a rank that suspects it
 *   message           written by its owner before it tries to be the author, and only while
 *                     nobody is
 *   author            used on rank 0's part only: 0, or the rank whose message it is, from 1.
 *                     Whoever gives up exchanges 0 for itself, once: release, after its message.
 *                     Readers acquire it before they copy the message of the author, so nobody
 *                     waits for a rank that dies while it writes. Never taken back.
 * tests/model/comm_end.pml checks this.
 */

struct life {
    _Alignas(EPX_LINE_BYTES) _Atomic uint64_t beats;
    _Atomic uint64_t position;
    _Alignas(EPX_LINE_BYTES) _Atomic int author;
    char message[EPX_MAX_ERROR_STRING];
};

struct shm {
    struct epx_comm *comm;
    struct epx_window *lives;
    uint64_t *last_beats; /* [R] at the time of the probe */
};

static struct life *life_of(const struct shm *shm, int rank)
{
    return (struct life *)(void *)shm->lives->address[rank];
}

static int shm_usable(struct epx_comm *comm, char *why)
{
    if (comm->num_nodes == 1 && comm->real_nodes == 1)
        return 1;
    snprintf(why, EPX_WHY_MAX, "the ranks are on %d nodes%s", comm->num_nodes,
             comm->params.ranks_per_node ? " (epx_ranks_per_node)" : "");
    return 0;
}

static void shm_window_free(void *state, struct epx_window *window)
{
    const struct shm *shm = state;

    epx_node_window_free(shm->comm, window);
}

static int shm_window_create(void *state, size_t bytes, struct epx_window **window)
{
    const struct shm *shm = state;

    return epx_node_window_create(shm->comm, bytes, window);
}

/* The windows of the library are unmapped when they are freed. */
static int shm_window_fence(void *state, struct epx_window *window)
{
    (void)state;
    return window ? epx_node_window_fence(window) : EPX_SUCCESS;
}

static void shm_free(void *state)
{
    struct shm *shm = state;

    shm_window_free(shm, shm->lives);
    free(shm->last_beats);
}

/* Copies the message of the rank that ended the communicator; returns 0 if none has. */
static int read_obituary(const struct shm *shm, char *message)
{
    int author = atomic_load_explicit(&life_of(shm, 0)->author, memory_order_acquire);

    if (!author)
        return 0;
    memcpy(message, life_of(shm, author - 1)->message, EPX_MAX_ERROR_STRING);
    return 1;
}

static int shm_beat(void *state, uint64_t position, char *message)
{
    struct shm *shm = state;
    struct life *mine = life_of(shm, shm->comm->rank);

    atomic_store_explicit(&mine->position, position, memory_order_relaxed);
    atomic_store_explicit(&mine->beats, mine->beats + 1, memory_order_relaxed);
    return read_obituary(shm, message);
}

static void shm_probe(void *state)
{
    struct shm *shm = state;

    for (int r = 0; r < shm->comm->size; r++)
        shm->last_beats[r] = atomic_load_explicit(&life_of(shm, r)->beats, memory_order_relaxed);
}

static int shm_answered(void *state, int rank, uint64_t *position)
{
    struct shm *shm = state;
    struct life *life = life_of(shm, rank);

    *position = atomic_load_explicit(&life->position, memory_order_relaxed);
    return atomic_load_explicit(&life->beats, memory_order_relaxed) != shm->last_beats[rank];
}

static void shm_announce(void *state, char *message)
{
    struct shm *shm = state;
    struct life *mine = life_of(shm, shm->comm->rank);
    int nobody = 0;

    if (read_obituary(shm, message))
        return;
    snprintf(mine->message, sizeof(mine->message), "%s", message);
    epx_jitter();
    atomic_compare_exchange_strong(&life_of(shm, 0)->author, &nobody, shm->comm->rank + 1);
    read_obituary(shm, message);
}

static const struct epx_liveness_ops shm_liveness = {
    .beat = shm_beat,
    .probe = shm_probe,
    .answered = shm_answered,
    .announce = shm_announce,
};

static int shm_create(struct epx_transport *transport)
{
    struct shm *shm = transport->state;
    struct epx_comm *comm = transport->comm;

    transport->liveness = (struct epx_liveness){&shm_liveness, shm};
    shm->comm = comm;
    shm->last_beats = epx_memory_zeroed((size_t)comm->size, sizeof(*shm->last_beats));
    EPX_TRY(epx_comm_agree(comm, shm->last_beats
                                     ? EPX_SUCCESS
                                     : epx_fail(EPX_ERR_NO_MEM, "no memory for transport shm")));
    return shm_window_create(shm, sizeof(struct life), &shm->lives);
}

const struct epx_transport_ops epx_transport_shm = {
    .memory = EPX_MEMORY_SYSTEM,
    .usable = shm_usable,
    .state_bytes = sizeof(struct shm),
    .create = shm_create,
    .free = shm_free,
    .window_create = shm_window_create,
    .window_free = shm_window_free,
    .window_fence = shm_window_fence,
    .threads = 1,
};
