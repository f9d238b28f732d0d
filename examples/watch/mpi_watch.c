/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_watch.c - ends a program whose call of MPI waits for a rank that does not come.
 *
 * The functions of MPI that wait and that the program calls are defined here, by the profiling
 * interface of MPI: each counts that the rank is in it, and calls PMPI_X. A thread, which makes no
 * call of MPI, looks from time to time whether the count stays. The ranks of a node share a board,
 * on which each counts the collectives that it has come to, and holds a lock. Who asks for the lock
 * of a rank that has died is told so by Linux.
 */
#define _GNU_SOURCE
#include "watch/mpi_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SHORTEST_NAP_MS = 10, LONGEST_NAP_MS = 1000, NAPS = 20 };

/* A rank's part of the board. */
struct seat {
    pthread_mutex_t alive; /* held by the rank as long as it lives */
    _Atomic int64_t met;   /* collectives that it has come to */
    atomic_int gave_up;    /* it ends because of an error */
    int rank;
};

struct board {
    atomic_int said; /* whether a rank of this node has said who is missing */
    struct seat seats[];
};

static struct {
    const char *program;
    int64_t timeout_ms;
    int rank, num_seats;
    struct board *board; /* NULL = none could be made */
    struct seat *own;
    pthread_t thread;
    int has_thread, stops; /* stops under the lock */
    pthread_mutex_t lock;
    pthread_cond_t stopped;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .stopped = PTHREAD_COND_INITIALIZER};

/* Odd while this rank is in a call of MPI that waits, even outside. */
static _Atomic int64_t steps;
static const char *_Atomic current; /* the name of that call */

/* This thread alone changes the count, so it takes no locked addition, which would be in times. */
static void add_one(_Atomic int64_t *count)
{
    int64_t old = atomic_load_explicit(count, memory_order_relaxed);

    atomic_store_explicit(count, old + 1, memory_order_relaxed);
}

static void enter(const char *call, int is_collective)
{
    atomic_store_explicit(&current, call, memory_order_relaxed);
    if (is_collective && watch.own)
        add_one(&watch.own->met);
    add_one(&steps);
}

static int leave(int code)
{
    add_one(&steps);
    return code;
}

static int is_dead(struct seat *seat)
{
    int code = pthread_mutex_trylock(&seat->alive);

    if (code == 0)
        pthread_mutex_unlock(&seat->alive);
    return code == EOWNERDEAD || code == ENOTRECOVERABLE;
}

static int is_late(const struct seat *seat)
{
    return atomic_load(&seat->met) < atomic_load(&watch.own->met);
}

/* Writes the ranks of this node that are dead and have not given up, or else those that have not
 * come to as many collectives as this one; returns how many. */
static int list_missing(int dead, char *list, size_t length)
{
    size_t used = 0;
    int num = 0;

    for (int i = 0; i < watch.num_seats && used < length; i++) {
        struct seat *seat = &watch.board->seats[i];

        if (seat == watch.own || atomic_load(&seat->gave_up) ||
            !(dead ? is_dead(seat) : is_late(seat)))
            continue;
        used += (size_t)snprintf(list + used, length - used, "%s%d", num++ ? ", " : "", seat->rank);
    }
    return num;
}

/* One rank of a node says it; the others end without a word. */
static void give_up(void)
{
    const char *what = "has ended", *call = atomic_load(&current);
    char missing[256] = "";
    int num = 0;

    if (watch.board && atomic_exchange(&watch.board->said, 1))
        _exit(EXIT_FAILURE);
    if (watch.board)
        num = list_missing(1, missing, sizeof(missing));
    if (watch.board && num == 0) {
        num = list_missing(0, missing, sizeof(missing));
        what = "has not come";
    }
    fflush(stdout);
    if (num)
        fprintf(stderr, "%s: rank %d has waited %lld ms in %s: rank %s %s\n", watch.program,
                watch.rank, (long long)watch.timeout_ms, call, missing, what);
    else
        fprintf(stderr, "%s: rank %d has waited %lld ms in %s: no rank of its node is missing\n",
                watch.program, watch.rank, (long long)watch.timeout_ms, call);
    _exit(EXIT_FAILURE);
}

/* An error of EPX ends this rank, too. EPX may have named a rank that lives and waits in MPI. */
static void note_error(void)
{
    char missing[256] = "";

    if (!watch.board)
        return;
    atomic_store(&watch.own->gave_up, 1);
    if (list_missing(1, missing, sizeof(missing)) && !atomic_exchange(&watch.board->said, 1))
        fprintf(stderr, "%s: rank %s has ended\n", watch.program, missing);
}

static int64_t now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Waits a while; returns whether the watch is over. */
static int nap(int64_t ms)
{
    struct timespec end;
    int stops;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)(ms / 1000);
    end.tv_nsec += (long)(ms % 1000) * 1000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&watch.lock);
    if (!watch.stops)
        pthread_cond_timedwait(&watch.stopped, &watch.lock, &end);
    stops = watch.stops;
    pthread_mutex_unlock(&watch.lock);
    return stops;
}

static void *look(void *unused)
{
    int64_t ms = watch.timeout_ms / NAPS, since = now_ms(), seen = 0;

    ms = ms < SHORTEST_NAP_MS ? SHORTEST_NAP_MS : ms > LONGEST_NAP_MS ? LONGEST_NAP_MS : ms;
    while (!nap(ms)) {
        int64_t step = atomic_load(&steps);

        if (step != seen || step % 2 == 0)
            since = now_ms();
        else if (now_ms() - since >= watch.timeout_ms)
            give_up();
        seen = step;
    }
    return unused;
}

static void *map_board(int fd, size_t bytes)
{
    void *board = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return board == MAP_FAILED ? NULL : board;
}

static void sit_down(struct seat *seat)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&seat->alive, &attr);
    pthread_mutexattr_destroy(&attr);
    pthread_mutex_lock(&seat->alive);
    seat->rank = watch.rank;
}

/* Collective. The board has no name any more when this returns. */
static void make_board(MPI_Comm node)
{
    char name[64] = "";
    int seat, all;
    size_t bytes;

    PMPI_Comm_size(node, &watch.num_seats);
    PMPI_Comm_rank(node, &seat);
    bytes = sizeof(*watch.board) + (size_t)watch.num_seats * sizeof(struct seat);
    if (seat == 0) {
        snprintf(name, sizeof(name), "/mpi_watch.%ld.%lld", (long)getpid(), (long long)now_ms());
        watch.board = map_board(shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600), bytes);
    }
    PMPI_Bcast(name, (int)sizeof(name), MPI_CHAR, 0, node);
    if (seat)
        watch.board = map_board(shm_open(name, O_RDWR, 0600), bytes);
    all = watch.board != NULL;
    if (watch.board)
        sit_down(&watch.board->seats[seat]);
    PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, node);
    if (seat == 0)
        shm_unlink(name);
    if (!all)
        watch.board = NULL;
    watch.own = watch.board ? &watch.board->seats[seat] : NULL;
}

static int64_t find_timeout(EPX_Comm comm)
{
    char text[MPI_MAX_INFO_VAL + 1] = "0";
    MPI_Info info;
    int found;

    if (EPX_Comm_get_info(comm, &info) != EPX_SUCCESS)
        return 0;
    MPI_Info_get(info, "epx_timeout_ms", MPI_MAX_INFO_VAL, text, &found);
    MPI_Info_free(&info);
    return strtoll(text, NULL, 10);
}

void mpi_watch_open(const char *program, EPX_Comm comm)
{
    MPI_Comm node;

    watch.program = program;
    watch.timeout_ms = find_timeout(comm);
    if (watch.has_thread || watch.timeout_ms == 0)
        return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &watch.rank);
    PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    make_board(node);
    PMPI_Comm_free(&node);
    watch.has_thread = pthread_create(&watch.thread, NULL, look, NULL) == 0;
}

static void stop(void)
{
    if (!watch.has_thread)
        return;
    pthread_mutex_lock(&watch.lock);
    watch.stops = 1;
    pthread_cond_signal(&watch.stopped);
    pthread_mutex_unlock(&watch.lock);
    pthread_join(watch.thread, NULL);
    watch.has_thread = 0;
}

int MPI_Finalize(void)
{
    int code;

    enter("MPI_Finalize", 1);
    code = leave(PMPI_Finalize());
    stop();
    return code;
}

int MPI_Abort(MPI_Comm comm, int code)
{
    note_error();
    return PMPI_Abort(comm, code);
}

int MPI_Comm_call_errhandler(MPI_Comm comm, int code)
{
    note_error();
    return PMPI_Comm_call_errhandler(comm, code);
}

#define WATCHED(name, is_collective, parameters, arguments)                                        \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        enter("MPI_" #name, is_collective);                                                        \
        return leave(PMPI_##name arguments);                                                       \
    }

WATCHED(Barrier, 1, (MPI_Comm comm), (comm))
WATCHED(Bcast, 1, (void *buffer, int num, MPI_Datatype type, int root, MPI_Comm comm),
        (buffer, num, type, root, comm))
WATCHED(Reduce, 1,
        (const void *from, void *to, int num, MPI_Datatype type, MPI_Op op, int root,
         MPI_Comm comm),
        (from, to, num, type, op, root, comm))
WATCHED(Allreduce, 1,
        (const void *from, void *to, int num, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
        (from, to, num, type, op, comm))
WATCHED(Gather, 1,
        (const void *from, int num_from, MPI_Datatype type_from, void *to, int num_to,
         MPI_Datatype type_to, int root, MPI_Comm comm),
        (from, num_from, type_from, to, num_to, type_to, root, comm))
WATCHED(Gatherv, 1,
        (const void *from, int num_from, MPI_Datatype type_from, void *to, const int *nums_to,
         const int *displs, MPI_Datatype type_to, int root, MPI_Comm comm),
        (from, num_from, type_from, to, nums_to, displs, type_to, root, comm))
WATCHED(Allgather, 1,
        (const void *from, int num_from, MPI_Datatype type_from, void *to, int num_to,
         MPI_Datatype type_to, MPI_Comm comm),
        (from, num_from, type_from, to, num_to, type_to, comm))
WATCHED(Alltoall, 1,
        (const void *from, int num_from, MPI_Datatype type_from, void *to, int num_to,
         MPI_Datatype type_to, MPI_Comm comm),
        (from, num_from, type_from, to, num_to, type_to, comm))
WATCHED(Alltoallv, 1,
        (const void *from, const int *nums_from, const int *displs_from, MPI_Datatype type_from,
         void *to, const int *nums_to, const int *displs_to, MPI_Datatype type_to, MPI_Comm comm),
        (from, nums_from, displs_from, type_from, to, nums_to, displs_to, type_to, comm))
WATCHED(Neighbor_alltoallv, 1,
        (const void *from, const int *nums_from, const int *displs_from, MPI_Datatype type_from,
         void *to, const int *nums_to, const int *displs_to, MPI_Datatype type_to, MPI_Comm comm),
        (from, nums_from, displs_from, type_from, to, nums_to, displs_to, type_to, comm))
WATCHED(Recv, 0,
        (void *to, int num, MPI_Datatype type, int source, int tag, MPI_Comm comm,
         MPI_Status *status),
        (to, num, type, source, tag, comm, status))
WATCHED(Wait, 0, (MPI_Request * request, MPI_Status *status), (request, status))
WATCHED(Waitall, 0, (int num, MPI_Request *requests, MPI_Status *statuses),
        (num, requests, statuses))
