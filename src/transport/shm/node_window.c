/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_window.c - windows in POSIX shared memory, one object for each node: the node's lowest rank
 * makes the object, every rank reserves its part, and its name is removed before anyone uses it.
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
#include <time.h>
#include <unistd.h>

#include "core/agree.h"

int epx_node_shared(const struct epx_comm *comm, int rank)
{
    return comm->node[rank] == comm->node[comm->rank];
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

/* Finds where the part of each rank of this node starts; returns the sum of their bytes. */
static size_t place_parts(const struct epx_comm *comm, const int64_t *bytes, size_t *offsets)
{
    size_t total = 0;

    for (int r = 0; r < comm->size; r++)
        if (epx_node_shared(comm, r)) {
            offsets[r] = total;
            total += (size_t)bytes[r];
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

static int map_parts(struct epx_comm *comm, const int64_t *bytes, const int64_t *keys,
                     size_t *offsets, struct epx_window *window)
{
    int first = lowest_rank(comm), fd = -1, created = 0, rc = EPX_SUCCESS;
    char name[64];

    window->mapping_bytes = place_parts(comm, bytes, offsets);
    snprintf(name, sizeof(name), "/epx-%llx", (unsigned long long)keys[first]);
    if (comm->rank == first)
        rc = open_object(name, 1, window->mapping_bytes, &fd);
    created = comm->rank == first && fd >= 0;
    rc = epx_comm_agree(comm, rc);
    if (rc == EPX_SUCCESS && comm->rank != first)
        rc = open_object(name, 0, window->mapping_bytes, &fd);
    if (rc == EPX_SUCCESS)
        rc = map_object(fd, offsets[comm->rank], (size_t)bytes[comm->rank], window);
    rc = epx_comm_agree(comm, rc);
    if (created)
        shm_unlink(name);
    if (fd >= 0)
        close(fd);
    for (int r = 0; rc == EPX_SUCCESS && r < comm->size; r++)
        if (epx_node_shared(comm, r))
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

void epx_node_window_free(const struct epx_comm *comm, struct epx_window *window)
{
    if (!window)
        return;
    if (window->mapping && !comm->finished) /* else a late peer may still store into it */
        munmap(window->mapping, window->mapping_bytes);
    window->own = NULL; /* it was part of the mapping */
    epx_window_free(window);
}

int epx_node_window_create(struct epx_comm *comm, size_t own_bytes, struct epx_window **result)
{
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
        rc = map_parts(comm, bytes, keys, offsets, window);
    if (rc == EPX_SUCCESS) {
        window->own = window->address[comm->rank];
        window->own_bytes = own_bytes;
        *result = window;
    } else {
        epx_node_window_free(comm, window);
    }
    free(bytes);
    free(keys);
    free(offsets);
    return rc;
}
