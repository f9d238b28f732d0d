/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_room.c - whether the process may still have what UCX takes.
 *
 * UCX aborts the process where it finds no file descriptor, no thread or no address space at some
 * places, so EPX tries to have as much of each before it calls UCX, and gives it back. A signal
 * ends the process where UCX makes a file in shared memory longer than the limit. What UCX takes
 * depends on the interfaces of the machine. With two of them it took up to 15 descriptors, 2 more
 * for each rank reached by TCP, and 90 MiB, in files of up to 8 MiB and one as long as the stages;
 * the amounts here leave room for more interfaces.
 */
#include "transport/ucx/ucx_room.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/machine.h"
#include "transport/transport.h"

enum { DESCRIPTORS = 64, RANK_DESCRIPTORS = 2, FIRST_LOOKED_AT = 4096 };
#define MIB ((size_t)1 << 20)
#define PROCESS_BYTES (256 * MIB)
#define RANK_BYTES (8 * MIB)

/* Ranks of this one's machine, or of the others. */
static int count_ranks(const struct epx_comm *comm, int same_machine)
{
    int num = 0;

    for (int r = 0; r < comm->size; r++)
        num += (comm->real_node[r] == comm->real_node[comm->rank]) == same_machine;
    return num;
}

/* Any descriptor that is open; -1 = none. */
static int open_descriptor(void)
{
    for (int fd = 0; fd < FIRST_LOOKED_AT; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return fd;
    return -1;
}

static int has_descriptors(const struct epx_comm *comm, char *why)
{
    int wanted = DESCRIPTORS + RANK_DESCRIPTORS * count_ranks(comm, 0), had = 0;
    int *fds = epx_memory_zeroed((size_t)wanted, sizeof(*fds)), from = open_descriptor();

    if (!fds) {
        snprintf(why, EPX_WHY_MAX, "rank %d has no memory for UCX", comm->rank);
        return 0;
    }
    while (had < wanted && (fds[had] = fcntl(from, F_DUPFD_CLOEXEC, 0)) >= 0)
        had++;
    for (int i = 0; i < had; i++)
        close(fds[i]);
    free(fds);
    if (had < wanted && from >= 0)
        snprintf(why, EPX_WHY_MAX,
                 "rank %d may open %d more files, UCX wants %d: raise the limit (ulimit -n)",
                 comm->rank, had, wanted);
    return had == wanted || from < 0;
}

/* The memory of one rank that others of its machine map: its stages, and what UCX has for
 * messages. */
static size_t shared_bytes(const struct epx_comm *comm)
{
    size_t ranks = (size_t)comm->size, stage = (size_t)comm->params.window_bytes;

    return 2 * (stage > 16384 * ranks ? stage : 16384 * ranks) + 8192 * ranks + RANK_BYTES;
}

static int has_files(const struct epx_comm *comm, char *why)
{
    size_t wanted = shared_bytes(comm) + RANK_BYTES;

    if (wanted <= epx_machine_file_limit())
        return 1;
    snprintf(why, EPX_WHY_MAX,
             "rank %d may have files of %llu bytes, UCX wants %zu: raise the limit (ulimit -f)",
             comm->rank, (unsigned long long)epx_machine_file_limit(), wanted);
    return 0;
}

static int has_addresses(const struct epx_comm *comm, char *why)
{
    size_t wanted = PROCESS_BYTES + (size_t)count_ranks(comm, 1) * shared_bytes(comm);
    void *taken = mmap(NULL, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (taken == MAP_FAILED)
        snprintf(why, EPX_WHY_MAX,
                 "rank %d finds no %zu MiB of addresses for UCX: raise the limit (ulimit -v)",
                 comm->rank, wanted / MIB);
    else
        munmap(taken, wanted);
    return taken != MAP_FAILED;
}

static void *end_at_once(void *nothing)
{
    return nothing;
}

static int has_thread(const struct epx_comm *comm, char *why)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, end_at_once, NULL) != 0) {
        snprintf(why, EPX_WHY_MAX,
                 "rank %d may have no thread for UCX: raise the limit (ulimit -u)", comm->rank);
        return 0;
    }
    pthread_join(thread, NULL);
    return 1;
}

int epx_ucx_has_room(const struct epx_comm *comm, char *why)
{
    return has_descriptors(comm, why) && has_files(comm, why) && has_addresses(comm, why) &&
           has_thread(comm, why);
}
