/* SPDX-License-Identifier: BSD-3-Clause */
/* transport_shm.c - ranks of one node store into each other's POSIX shared memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agree.h"
#include "transport.h"

/*
 * Life and death. Each rank's part of the life window:
 *   beats, position   written by its owner at every pass, read by a rank that suspects it
 *   obituary          used on rank 0's part only: OPEN -> WRITING -> PUBLISHED, once. Whoever
 *                     wins the exchange from OPEN writes the message, then publishes it with a
 *                     release store; readers acquire PUBLISHED before they copy the message.
 */
enum { OBITUARY_OPEN, OBITUARY_WRITING, OBITUARY_PUBLISHED };
enum { OBITUARY_PATIENCE = 10000 };

struct life {
    _Alignas(EPX_LINE_BYTES) _Atomic uint64_t beats;
    _Atomic uint64_t position;
    _Alignas(EPX_LINE_BYTES) _Atomic int obituary;
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

static int open_object(const char *name, int create, size_t bytes, int *fd)
{
    *fd = shm_open(name, create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, S_IRUSR | S_IWUSR);
    EPX_FAIL_IF(*fd < 0, EPX_ERR_NO_MEM, "shared memory %s: %s", name, strerror(errno));
    EPX_FAIL_IF(create && ftruncate(*fd, (off_t)bytes) != 0, EPX_ERR_NO_MEM,
                "shared memory of %zu bytes: %s", bytes, strerror(errno));
    return EPX_SUCCESS;
}

/* Every rank reserves its own part, so that a full file system is an error here and not a
 * signal later, and the pages lie near the rank. */
static int map_object(int fd, size_t offset, size_t own_bytes, struct epx_window *window)
{
    int error;
    void *mapping;

    do
        error = posix_fallocate(fd, (off_t)offset, (off_t)own_bytes);
    while (error == EINTR);
    EPX_FAIL_IF(error, EPX_ERR_NO_MEM, "no room for %zu bytes of shared memory: %s", own_bytes,
                strerror(error));
    mapping = mmap(NULL, window->mapping_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EPX_FAIL_IF(mapping == MAP_FAILED, EPX_ERR_NO_MEM, "mmap of %zu bytes: %s",
                window->mapping_bytes, strerror(errno));
    window->mapping = mapping;
    return EPX_SUCCESS;
}

/* Where each part starts; returns the sum. */
static size_t place_parts(const int64_t *bytes, int num, size_t *offsets)
{
    size_t total = 0;

    for (int r = 0; r < num; r++) {
        offsets[r] = total;
        total += (size_t)bytes[r];
    }
    return total;
}

static int map_parts(struct shm *shm, const int64_t *bytes, int64_t key, size_t *offsets,
                     struct epx_window *window)
{
    struct epx_comm *comm = shm->comm;
    char name[64];
    int fd = -1, created = 0, rc = EPX_SUCCESS;

    window->mapping_bytes = place_parts(bytes, comm->size, offsets);
    snprintf(name, sizeof(name), "/epx-%llx", (unsigned long long)key);
    if (comm->rank == 0)
        rc = open_object(name, 1, window->mapping_bytes, &fd);
    created = comm->rank == 0 && fd >= 0;
    rc = epx_comm_agree(comm, rc);
    if (rc == EPX_SUCCESS && comm->rank != 0)
        rc = open_object(name, 0, window->mapping_bytes, &fd);
    if (rc == EPX_SUCCESS)
        rc = map_object(fd, offsets[comm->rank], (size_t)bytes[comm->rank], window);
    rc = epx_comm_agree(comm, rc);
    if (created)
        shm_unlink(name);
    if (fd >= 0)
        close(fd);
    for (int r = 0; rc == EPX_SUCCESS && r < comm->size; r++)
        window->address[r] = (char *)window->mapping + offsets[r];
    return rc;
}

/* A name that nothing else on the machine has: process, count and time. */
static int64_t new_key(void)
{
    static atomic_uint counter;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)(((uint64_t)getpid() << 40) ^ ((uint64_t)atomic_fetch_add(&counter, 1) << 32) ^
                     ((uint64_t)now.tv_sec << 30) ^ (uint64_t)now.tv_nsec);
}

static void shm_window_free(void *state, struct epx_window *window)
{
    const struct shm *shm = state;

    if (!window)
        return;
    if (window->mapping && !shm->comm->finished) /* else a late peer may still store there */
        munmap(window->mapping, window->mapping_bytes);
    window->own = NULL; /* it was part of the mapping */
    epx_window_free(window);
}

static int shm_window_create(void *state, size_t own_bytes, struct epx_window **result)
{
    struct shm *shm = state;
    struct epx_comm *comm = shm->comm;
    struct epx_window *window = epx_window_empty(comm->size);
    int64_t *bytes = epx_memory_zeroed((size_t)comm->size, sizeof(*bytes));
    int64_t *keys = epx_memory_zeroed((size_t)comm->size, sizeof(*keys));
    size_t *offsets = epx_memory_zeroed((size_t)comm->size, sizeof(*offsets));
    size_t pages = (own_bytes + EPX_PAGE_BYTES) / EPX_PAGE_BYTES;
    int rc = window && bytes && keys && offsets
                 ? EPX_SUCCESS
                 : epx_fail(EPX_ERR_NO_MEM, "no memory for a window of %d ranks", comm->size);

    rc = epx_comm_agree(comm, rc);
    if (rc == EPX_SUCCESS)
        rc = epx_comm_allgather(comm, (int64_t)(pages * EPX_PAGE_BYTES), bytes);
    if (rc == EPX_SUCCESS)
        rc = epx_comm_allgather(comm, new_key(), keys);
    if (rc == EPX_SUCCESS)
        rc = map_parts(shm, bytes, keys[0], offsets, window);
    if (rc == EPX_SUCCESS) {
        window->own = window->address[comm->rank];
        window->own_bytes = own_bytes;
        *result = window;
    } else {
        shm_window_free(shm, window);
    }
    free(bytes);
    free(keys);
    free(offsets);
    return rc;
}

static void shm_free(void *state)
{
    struct shm *shm = state;

    if (!shm)
        return;
    shm_window_free(shm, shm->lives);
    free(shm->last_beats);
    free(shm);
}

static int shm_create(struct epx_comm *comm, void **state)
{
    struct shm *shm = epx_memory_zeroed(1, sizeof(*shm));
    int rc = EPX_SUCCESS;

    *state = shm;
    if (shm) {
        shm->comm = comm;
        shm->last_beats = epx_memory_zeroed((size_t)comm->size, sizeof(*shm->last_beats));
    }
    if (!shm || !shm->last_beats)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for transport shm");
    EPX_TRY(epx_comm_agree(comm, rc));
    return shm_window_create(shm, sizeof(struct life), &shm->lives);
}

static int shm_beat(void *state, uint64_t position, char *message)
{
    struct shm *shm = state;
    struct life *mine = life_of(shm, shm->comm->rank), *first = life_of(shm, 0);

    atomic_store_explicit(&mine->position, position, memory_order_relaxed);
    atomic_fetch_add_explicit(&mine->beats, 1, memory_order_relaxed);
    if (atomic_load_explicit(&first->obituary, memory_order_acquire) != OBITUARY_PUBLISHED)
        return 0;
    memcpy(message, first->message, sizeof(first->message));
    return 1;
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
    struct life *first = life_of(state, 0);
    int open = OBITUARY_OPEN;

    if (atomic_compare_exchange_strong(&first->obituary, &open, OBITUARY_WRITING)) {
        snprintf(first->message, sizeof(first->message), "%s", message);
        atomic_store_explicit(&first->obituary, OBITUARY_PUBLISHED, memory_order_release);
        return;
    }
    for (int i = 0; i < OBITUARY_PATIENCE; i++)
        if (atomic_load_explicit(&first->obituary, memory_order_acquire) == OBITUARY_PUBLISHED) {
            memcpy(message, first->message, sizeof(first->message));
            return;
        }
}

static const struct epx_liveness_ops shm_liveness = {
    .beat = shm_beat,
    .probe = shm_probe,
    .answered = shm_answered,
    .announce = shm_announce,
};

const struct epx_transport_ops epx_transport_shm = {
    .name = "shm",
    .description = "ranks store into each other's shared memory",
    .memory = EPX_MEMORY_SYSTEM,
    .usable = shm_usable,
    .create = shm_create,
    .free = shm_free,
    .liveness = &shm_liveness,
    .window_create = shm_window_create,
    .window_free = shm_window_free,
    .direct = 1,
    .threads = 1,
};
