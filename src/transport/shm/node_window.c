/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_window.c - windows in POSIX shared memory, one object for each node.
 *
 * The node's lowest rank makes the object, all ranks of the node open it, and its name is removed.
 * Only then every rank reserves its part, which takes long. So a job that is killed meanwhile
 * leaves nothing: the object ends with the last process that has it open. While it has a name it
 * has no pages, and every rank removes the name, as the one that made it may be dead.
 */
#include "transport/shm/node_window.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "core/agree.h"

enum { PIECE_BYTES = 16 << 20, PROCESS_SHIFT = 40 };

/* What ranks tell each other of a window, each [R]. */
struct parts {
    int64_t *pages; /* of each rank's part; -1 = the rank has no memory for this struct */
    int64_t *keys;  /* of the node's lowest rank: the name of the object */
    size_t *offsets;
};

int epx_node_shared(const struct epx_comm *comm, int rank)
{
    return comm->node[rank] == comm->node[comm->rank];
}

/* The error of a machine whose /dev/shm is too small. */
static int fail_room(size_t bytes, const char *why)
{
    return epx_fail(EPX_ERR_NO_MEM,
                    "no room for %zu bytes of shared memory: %s; enlarge /dev/shm (containers: "
                    "--shm-size)",
                    bytes, why);
}

/* Refuses what cannot be had before a page of it is taken. Bytes are those of all ranks of the
 * node; other programs may still take the room before it is reserved. */
static int check_room(int fd, size_t bytes)
{
    struct statvfs system;
    char why[64];

    EPX_FAIL_IF(bytes > epx_machine_memory(), EPX_ERR_NO_MEM,
                "no room for %zu bytes of shared memory: the machine has %llu bytes of memory",
                bytes, (unsigned long long)epx_machine_memory());
    if (fstatvfs(fd, &system) != 0 || system.f_blocks == 0) /* 0 = a file system without a limit */
        return EPX_SUCCESS;
    if (bytes / system.f_frsize <= system.f_bavail)
        return EPX_SUCCESS;
    snprintf(why, sizeof(why), "%llu are free",
             (unsigned long long)system.f_bavail * system.f_frsize);
    return fail_room(bytes, why);
}

static int open_named(const char *name, int flags, int *fd)
{
    *fd = shm_open(name, O_RDWR | flags, S_IRUSR | S_IWUSR);
    EPX_FAIL_IF(*fd < 0, EPX_ERR_NO_MEM, "shared memory %s: %s", name, strerror(errno));
    return EPX_SUCCESS;
}

/* Finds where the part of each rank of this node starts; returns the sum of their bytes, SIZE_MAX
 * if that is too much for a number. */
static size_t place_parts(const struct epx_comm *comm, const struct parts *parts)
{
    size_t total = 0, bytes;

    for (int r = 0; r < comm->size; r++)
        if (epx_node_shared(comm, r)) {
            parts->offsets[r] = total;
            if (__builtin_mul_overflow((size_t)parts->pages[r], (size_t)EPX_PAGE_BYTES, &bytes) ||
                __builtin_add_overflow(total, bytes, &total))
                return SIZE_MAX;
        }
    return total;
}

static int lowest_rank(const struct epx_comm *comm)
{
    int rank = 0;

    while (!epx_node_shared(comm, rank))
        rank++;
    return rank;
}

static int make_object(const char *name, size_t bytes, int *fd)
{
    EPX_TRY(open_named(name, O_CREAT | O_EXCL, fd));
    return check_room(*fd, bytes);
}

/* Collective, agreed: opens the node's object, which has no name then. */
static int open_object(struct epx_comm *comm, const int64_t *keys, size_t bytes, int *fd)
{
    int first = lowest_rank(comm), rc = EPX_SUCCESS;
    uint64_t key = (uint64_t)keys[first];
    char name[64];

    snprintf(name, sizeof(name), "/epx-%llu-%llx", (unsigned long long)(key >> PROCESS_SHIFT),
             (unsigned long long)(key & ((UINT64_C(1) << PROCESS_SHIFT) - 1)));
    if (comm->rank == first)
        rc = make_object(name, bytes, fd);
    rc = epx_comm_agree(comm, rc);
    if (rc == EPX_SUCCESS) {
        if (comm->rank != first)
            rc = open_named(name, 0, fd);
        rc = epx_comm_agree(comm, rc);
    }
    shm_unlink(name);
    return rc;
}

/* Reserves a piece; *piece_bytes becomes less if signals came meanwhile. Returns an error of the
 * system: EINTR if they came for as long as a wait may last. */
static int reserve_piece(const struct epx_comm *comm, int fd, off_t offset, size_t *piece_bytes)
{
    const int64_t bound_ms = comm->params.timeout_ms, end = epx_deadline_in(bound_ms);
    int error;

    while ((error = posix_fallocate(fd, offset, (off_t)*piece_bytes)) == EINTR) {
        if (bound_ms && epx_deadline_is_over(end))
            break;
        if (*piece_bytes > EPX_PAGE_BYTES)
            *piece_bytes = *piece_bytes / 2 / EPX_PAGE_BYTES * EPX_PAGE_BYTES;
    }
    return error;
}

/*
 * Every rank reserves its own part, so that a full file system is an error here and not a signal
 * later, and the pages lie near the rank. It does so in pieces. Between them this rank answers its
 * peers and hears of the end of the communicator. Where a signal undoes a piece, as in older
 * kernels, the next ones are smaller: in the end a piece fits between two signals.
 */
static int reserve(struct epx_comm *comm, int fd, size_t offset, size_t bytes)
{
    const uint64_t limit = epx_machine_file_limit();
    size_t most = PIECE_BYTES;

    EPX_FAIL_IF(
        offset + bytes > limit, EPX_ERR_NO_MEM,
        "no room for %zu bytes of shared memory: files of this process may have %llu; raise "
        "the limit (ulimit -f)",
        offset + bytes, (unsigned long long)limit);
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < most ? bytes - done : most, reserved = piece;
        int error = reserve_piece(comm, fd, (off_t)(offset + done), &reserved);

        EPX_FAIL_IF(error == EINTR, EPX_ERR_NO_MEM,
                    "signals interrupted the reservation of shared memory for %lld ms",
                    (long long)comm->params.timeout_ms);
        if (error == ENOSPC)
            return fail_room(bytes, strerror(error));
        EPX_FAIL_IF(error, EPX_ERR_NO_MEM, "%zu bytes of shared memory: %s", bytes,
                    strerror(error));
        most = reserved < piece ? reserved : most;
        done += reserved;
        EPX_TRY(epx_comm_pass(comm));
    }
    return EPX_SUCCESS;
}

/* Asks for addresses first: they cost nothing if the reservation fails. */
static int map_object(struct epx_comm *comm, int fd, size_t offset, size_t own_bytes,
                      struct epx_window *window)
{
    void *mapping = mmap(NULL, window->mapping_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    EPX_FAIL_IF(mapping == MAP_FAILED, EPX_ERR_NO_MEM, "mmap of %zu bytes: %s",
                window->mapping_bytes, strerror(errno));
    window->mapping = mapping;
    return reserve(comm, fd, offset, own_bytes);
}

static void unmap(struct epx_window *window)
{
    if (window->mapping)
        munmap(window->mapping, window->mapping_bytes);
    window->mapping = NULL;
}

/* Collective, agreed. */
static int map_parts(struct epx_comm *comm, const struct parts *parts, struct epx_window *window)
{
    int fd = -1, me = comm->rank, rc;

    window->mapping_bytes = place_parts(comm, parts);
    rc = open_object(comm, parts->keys, window->mapping_bytes, &fd);
    if (rc == EPX_SUCCESS) {
        rc = map_object(comm, fd, parts->offsets[me], (size_t)parts->pages[me] * EPX_PAGE_BYTES,
                        window);
        rc = epx_comm_agree(comm, rc);
    }
    if (fd >= 0)
        close(fd);
    if (rc != EPX_SUCCESS)
        unmap(window); /* nobody was given an address yet */
    for (int r = 0; rc == EPX_SUCCESS && r < comm->size; r++)
        if (epx_node_shared(comm, r))
            window->address[r] = (char *)window->mapping + parts->offsets[r];
    return rc;
}

/* A name that nothing else on the machine has: the process, then count and time. */
static int64_t new_key(void)
{
    static atomic_uint counter;
    struct timespec now;
    uint64_t moment;

    clock_gettime(CLOCK_REALTIME, &now);
    moment = ((uint64_t)atomic_fetch_add(&counter, 1) << 32) ^ ((uint64_t)now.tv_sec << 30) ^
             (uint64_t)now.tv_nsec;
    return (int64_t)(((uint64_t)getpid() << PROCESS_SHIFT) |
                     (moment & ((UINT64_C(1) << PROCESS_SHIFT) - 1)));
}

void epx_node_window_free(const struct epx_comm *comm, struct epx_window *window)
{
    if (!window)
        return;
    if (!epx_comm_keeps_memory(comm)) /* else a late peer may still store into it */
        unmap(window);
    window->own = NULL; /* it was part of the mapping */
    epx_window_free(window);
}

/* The old pages live on as long as another process maps them, and are seen by that alone. */
int epx_node_window_fence(struct epx_window *window)
{
    const size_t bytes = (window->own_bytes / EPX_PAGE_BYTES + 1) * EPX_PAGE_BYTES;
    char *first = window->mapping, *own = window->own, *end = first + window->mapping_bytes;
    void *copy = malloc(bytes);

    EPX_FAIL_IF(!copy, EPX_ERR_NO_MEM, "no memory for a copy of %zu bytes", bytes);
    memcpy(copy, own, bytes);
    if (mmap(own, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED) {
        free(copy);
        return epx_fail(EPX_ERR_NO_MEM, "mmap of %zu bytes: %s", bytes, strerror(errno));
    }
    memcpy(own, copy, bytes);
    free(copy);
    if (own > first)
        munmap(first, (size_t)(own - first));
    if (end > own + bytes)
        munmap(own + bytes, (size_t)(end - own) - bytes);
    window->mapping = own;
    window->mapping_bytes = bytes;
    return EPX_SUCCESS;
}

static void free_parts(struct parts *parts)
{
    free(parts->pages);
    free(parts->keys);
    free(parts->offsets);
}

static int allocate_parts(const struct epx_comm *comm, struct parts *parts)
{
    size_t ranks = (size_t)comm->size;

    parts->pages = epx_memory_zeroed(ranks, sizeof(*parts->pages));
    parts->keys = epx_memory_zeroed(ranks, sizeof(*parts->keys));
    parts->offsets = epx_memory_zeroed(ranks, sizeof(*parts->offsets));
    EPX_FAIL_IF(!parts->pages || !parts->keys || !parts->offsets, EPX_ERR_NO_MEM,
                "no memory for a window of %zu ranks", ranks);
    return EPX_SUCCESS;
}

/* Collective, agreed: gathers the parts; rc is this rank's own result so far. */
static int gather_parts(struct epx_comm *comm, int rc, int64_t pages, struct parts *parts)
{
    int failed = 0;

    EPX_TRY(epx_comm_allgather(comm, rc == EPX_SUCCESS ? pages : -1, parts->pages));
    for (int r = 0; r < comm->size; r++)
        failed |= comm->agreement.gathered[r] < 0;
    if (failed)
        return epx_comm_agree(comm, rc);
    return epx_comm_allgather(comm, new_key(), parts->keys);
}

int epx_node_window_create(struct epx_comm *comm, size_t own_bytes, struct epx_window **result)
{
    struct epx_window *window = epx_window_empty(comm->size);
    struct parts parts = {0};
    int rc = window ? allocate_parts(comm, &parts)
                    : epx_fail(EPX_ERR_NO_MEM, "no memory for a window of %d ranks", comm->size);

    rc = gather_parts(comm, rc, (int64_t)(own_bytes / EPX_PAGE_BYTES + 1), &parts);
    if (rc == EPX_SUCCESS)
        rc = map_parts(comm, &parts, window);
    if (rc == EPX_SUCCESS) {
        window->own = window->address[comm->rank];
        window->own_bytes = own_bytes;
        *result = window;
    } else {
        epx_node_window_free(comm, window);
    }
    free_parts(&parts);
    return rc;
}
