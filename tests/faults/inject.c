/* SPDX-License-Identifier: BSD-3-Clause */
/* inject.c - lets one call of the library fail; counts what the library holds. */
#include "faults/inject.h"

#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { MOST_POINTERS = 4096, MOST_DUPLICATIONS = 8 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int armed, nth_fails, calls;
static enum inject_kind kind_fails;
static const char *failed;
static void *pointers[MOST_POINTERS]; /* that the library holds */
static int num_pointers, num_others;
static struct inject_begun *begun;
static int num_agreements, agrees, tests_due;
static double last_call, longest_pause; /* seconds */
static int duplications;                /* of communicators, begun since the last catching up */
static MPI_Comm *copies[MOST_DUPLICATIONS];

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A call of MPI by this process, which may be armed to stop. */
static void note_call(void)
{
    double pause;

    if (kind_fails != INJECT_STOP)
        return;
    pause = now() - last_call;
    if (pause > longest_pause)
        longest_pause = pause;
    last_call += pause;
}

double inject_longest_pause(void)
{
    note_call();
    return longest_pause;
}

void inject_arm_stop(int nth, struct inject_begun *noted)
{
    inject_arm(INJECT_STOP, nth);
    begun = noted;
    num_agreements = agrees = tests_due = 0;
    last_call = now();
    longest_pause = 0;
}

void inject_arm(enum inject_kind kind, int nth)
{
    pthread_mutex_lock(&mutex);
    kind_fails = kind;
    nth_fails = nth;
    calls = 0;
    failed = NULL;
    duplications = 0;
    armed = 1;
    pthread_mutex_unlock(&mutex);
}

const char *inject_disarm(void)
{
    armed = 0;
    return failed;
}

int inject_live(void)
{
    return num_pointers + num_others;
}

/* What the library duplicates for its nth communicator: the world for traffic and user, and traffic
 * for all others. */
static MPI_Comm original(int nth)
{
    return nth < 2 ? MPI_COMM_WORLD : *copies[0];
}

void inject_catch_up(void)
{
    int most;
    MPI_Comm copy;
    MPI_Request request;

    PMPI_Allreduce(&duplications, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (duplications < most) {
        PMPI_Comm_idup(original(duplications), &copy, &request);
        PMPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    PMPI_Barrier(MPI_COMM_WORLD);
}

/* Before a call of MPI, where an armed process stops itself. */
static void stop_perhaps(const char *function)
{
    if (!armed || kind_fails != INJECT_STOP)
        return;
    if (agrees && strcmp(function, "MPI_Test") != 0) {
        num_agreements++;
        agrees = 0;
    }
    if (++calls == nth_fails) {
        failed = function;
        begun->agreements = num_agreements;
        begun->duplications = duplications;
        raise(SIGSTOP);
    }
    agrees = agrees || strcmp(function, "MPI_Iallreduce") == 0;
    tests_due = strncmp(function, "MPI_Iall", 8) == 0 || strcmp(function, "MPI_Ibcast") == 0 ||
                strcmp(function, "MPI_Comm_idup") == 0;
}

static int fails(enum inject_kind kind, const char *function)
{
    int fails_now = 0;

    if (kind == INJECT_MPI) {
        note_call();
        stop_perhaps(function);
    }
    pthread_mutex_lock(&mutex);
    if (armed && kind == kind_fails && ++calls == nth_fails) {
        failed = function;
        fails_now = 1;
    }
    pthread_mutex_unlock(&mutex);
    return fails_now;
}

static void *keep(void *pointer)
{
    pthread_mutex_lock(&mutex);
    if (armed && pointer && num_pointers < MOST_POINTERS)
        pointers[num_pointers++] = pointer;
    pthread_mutex_unlock(&mutex);
    return pointer;
}

static void let_go(const void *pointer)
{
    pthread_mutex_lock(&mutex);
    for (int i = num_pointers - 1; pointer && i >= 0; i--)
        if (pointers[i] == pointer) {
            pointers[i] = pointers[--num_pointers];
            break;
        }
    pthread_mutex_unlock(&mutex);
}

static void count_other(int change)
{
    pthread_mutex_lock(&mutex);
    if (armed)
        num_others += change;
    pthread_mutex_unlock(&mutex);
}

/* The system's functions, under the names of the linker's --wrap. */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
int __real_posix_memalign(void **pointer, size_t alignment, size_t bytes);
void __real_free(void *pointer);
void *__real_mmap(void *address, size_t bytes, int access, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t bytes);
int __real_shm_open(const char *name, int flags, mode_t mode);
int __real_posix_fallocate(int fd, off_t offset, off_t bytes);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *argument);

void *__real_dlopen(const char *name, int flags);
int __real_socket(int family, int type, int protocol);
int __real_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
int __real_epoll_create1(int flags);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
int __wrap_posix_memalign(void **pointer, size_t alignment, size_t bytes);
void __wrap_free(void *pointer);
void *__wrap_mmap(void *address, size_t bytes, int access, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t bytes);
int __wrap_shm_open(const char *name, int flags, mode_t mode);
int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *argument);
void *__wrap_dlopen(const char *name, int flags);
int __wrap_socket(int family, int type, int protocol);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
int __wrap_epoll_create1(int flags);

void *__wrap_malloc(size_t bytes)
{
    return fails(INJECT_SHORTAGE, "malloc") ? NULL : keep(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails(INJECT_SHORTAGE, "calloc") ? NULL : keep(__real_calloc(n, bytes));
}

int __wrap_posix_memalign(void **pointer, size_t alignment, size_t bytes)
{
    int error = fails(INJECT_SHORTAGE, "posix_memalign")
                    ? ENOMEM
                    : __real_posix_memalign(pointer, alignment, bytes);

    if (error == 0)
        keep(*pointer);
    return error;
}

void __wrap_free(void *pointer)
{
    let_go(pointer);
    __real_free(pointer);
}

void *__wrap_mmap(void *address, size_t bytes, int access, int flags, int fd, off_t offset)
{
    void *mapping;

    if (fails(INJECT_SHORTAGE, "mmap")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    mapping = __real_mmap(address, bytes, access, flags, fd, offset);
    return mapping == MAP_FAILED ? mapping : keep(mapping);
}

int __wrap_munmap(void *address, size_t bytes)
{
    let_go(address);
    return __real_munmap(address, bytes);
}

int __wrap_shm_open(const char *name, int flags, mode_t mode)
{
    if (!fails(INJECT_SHORTAGE, "shm_open"))
        return __real_shm_open(name, flags, mode);
    errno = EMFILE;
    return -1;
}

int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes)
{
    if (fails(INJECT_SHORTAGE, "posix_fallocate"))
        return ENOSPC;
    return __real_posix_fallocate(fd, offset, bytes);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *argument)
{
    if (fails(INJECT_SHORTAGE, "pthread_create"))
        return EAGAIN;
    return __real_pthread_create(thread, attr, start, argument);
}

void *__wrap_dlopen(const char *name, int flags)
{
    return fails(INJECT_SHORTAGE, "dlopen") ? NULL : __real_dlopen(name, flags);
}

static int no_descriptor(void)
{
    errno = EMFILE;
    return -1;
}

int __wrap_socket(int family, int type, int protocol)
{
    return fails(INJECT_SHORTAGE, "socket") ? no_descriptor()
                                            : __real_socket(family, type, protocol);
}

/* Only a connection that is there is accepted without a descriptor for it. */
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    int accepted = __real_accept4(fd, address, length, flags);

    if (accepted < 0 || !fails(INJECT_SHORTAGE, "accept4"))
        return accepted;
    close(accepted);
    return no_descriptor();
}

int __wrap_epoll_create1(int flags)
{
    return fails(INJECT_SHORTAGE, "epoll_create1") ? no_descriptor() : __real_epoll_create1(flags);
}

/* Calls of MPI. A call that is made to fail does not reach MPI. */

#define FORWARD(name, parameters, arguments)                                                       \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        return fails(INJECT_MPI, "MPI_" #name) ? MPI_ERR_OTHER : PMPI_##name arguments;            \
    }

/* A call that frees something reaches MPI before it is made to fail: else this program would
 * leak. */
#define FORWARD_FIRST(name, parameters, arguments, change)                                         \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        int error = PMPI_##name arguments;                                                         \
                                                                                                   \
        count_other(change);                                                                       \
        return fails(INJECT_MPI, "MPI_" #name) ? MPI_ERR_OTHER : error;                            \
    }

FORWARD(Add_error_class, (int *error_class), (error_class))
FORWARD(Add_error_code, (int error_class, int *code), (error_class, code))
FORWARD(Add_error_string, (int code, const char *text), (code, text))
FORWARD(Cancel, (MPI_Request * request), (request))
FORWARD(Comm_call_errhandler, (MPI_Comm comm, int code), (comm, code))
FORWARD(Comm_create_keyval,
        (MPI_Comm_copy_attr_function * copy, MPI_Comm_delete_attr_function *remove, int *keyval,
         void *state),
        (copy, remove, keyval, state))
FORWARD(Comm_get_name, (MPI_Comm comm, char *name, int *length), (comm, name, length))
FORWARD(Comm_rank, (MPI_Comm comm, int *rank), (comm, rank))
FORWARD(Comm_set_attr, (MPI_Comm comm, int keyval, void *value), (comm, keyval, value))
FORWARD(Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler), (comm, handler))
FORWARD(Comm_set_name, (MPI_Comm comm, const char *name), (comm, name))
FORWARD(Comm_size, (MPI_Comm comm, int *size), (comm, size))
FORWARD(Comm_test_inter, (MPI_Comm comm, int *inter), (comm, inter))
FORWARD(Error_string, (int code, char *text, int *length), (code, text, length))
FORWARD(Finalized, (int *flag), (flag))
FORWARD(Get_elements_x, (const MPI_Status *status, MPI_Datatype type, MPI_Count *count),
        (status, type, count))
FORWARD(Get_processor_name, (char *name, int *length), (name, length))
FORWARD(Iallgather,
        (const void *send, int sendcount, MPI_Datatype sendtype, void *recv, int recvcount,
         MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request),
        (send, sendcount, sendtype, recv, recvcount, recvtype, comm, request))
FORWARD(Iallreduce,
        (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
         MPI_Request *request),
        (send, recv, count, type, op, comm, request))
FORWARD(Ialltoall,
        (const void *send, int sendcount, MPI_Datatype sendtype, void *recv, int recvcount,
         MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request),
        (send, sendcount, sendtype, recv, recvcount, recvtype, comm, request))
FORWARD(Ialltoallv,
        (const void *send, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype,
         void *recv, const int recvcounts[], const int rdispls[], MPI_Datatype recvtype,
         MPI_Comm comm, MPI_Request *request),
        (send, sendcounts, sdispls, sendtype, recv, recvcounts, rdispls, recvtype, comm, request))
FORWARD(Ibcast,
        (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request),
        (buffer, count, type, root, comm, request))
FORWARD(Cart_shift, (MPI_Comm comm, int direction, int by, int *source, int *to),
        (comm, direction, by, source, to))
FORWARD(Cartdim_get, (MPI_Comm comm, int *dimensions), (comm, dimensions))
FORWARD(Dist_graph_neighbors,
        (MPI_Comm comm, int indegree, int sources[], int in_weights[], int outdegree,
         int destinations[], int out_weights[]),
        (comm, indegree, sources, in_weights, outdegree, destinations, out_weights))
FORWARD(Dist_graph_neighbors_count, (MPI_Comm comm, int *indegree, int *outdegree, int *weighted),
        (comm, indegree, outdegree, weighted))
FORWARD(Graph_neighbors, (MPI_Comm comm, int rank, int most, int *neighbors),
        (comm, rank, most, neighbors))
FORWARD(Graph_neighbors_count, (MPI_Comm comm, int rank, int *num), (comm, rank, num))
FORWARD(Topo_test, (MPI_Comm comm, int *status), (comm, status))
FORWARD(Info_get, (MPI_Info info, const char *key, int length, char *value, int *flag),
        (info, key, length, value, flag))
FORWARD(Info_get_nkeys, (MPI_Info info, int *keys), (info, keys))
FORWARD(Info_get_nthkey, (MPI_Info info, int n, char *key), (info, n, key))
FORWARD(Info_set, (MPI_Info info, const char *key, const char *value), (info, key, value))
FORWARD(Initialized, (int *flag), (flag))
FORWARD(Irecv,
        (void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
         MPI_Request *request),
        (buffer, count, type, source, tag, comm, request))
FORWARD(Isend,
        (const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
         MPI_Request *request),
        (buffer, count, type, to, tag, comm, request))
FORWARD(Issend,
        (const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
         MPI_Request *request),
        (buffer, count, type, to, tag, comm, request))
FORWARD(Status_set_cancelled, (MPI_Status * status, int flag), (status, flag))
FORWARD(Status_set_elements_x, (MPI_Status * status, MPI_Datatype type, MPI_Count count),
        (status, type, count))

FORWARD_FIRST(Comm_free, (MPI_Comm * comm), (comm), -1)
FORWARD_FIRST(Comm_free_keyval, (int *keyval), (keyval), 0)
FORWARD_FIRST(Info_free, (MPI_Info * info), (info), -1)
FORWARD_FIRST(Wait, (MPI_Request * request, MPI_Status *status), (request, status), 0)

int MPI_Info_create(MPI_Info *info)
{
    if (fails(INJECT_MPI, "MPI_Info_create"))
        return MPI_ERR_OTHER;
    count_other(1);
    return PMPI_Info_create(info);
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *copy, MPI_Request *request)
{
    if (fails(INJECT_MPI, "MPI_Comm_idup"))
        return MPI_ERR_OTHER;
    if (duplications < MOST_DUPLICATIONS)
        copies[duplications++] = copy;
    count_other(1);
    return PMPI_Comm_idup(comm, copy, request);
}

/* Counts only calls that complete: how often the library polls depends on the other ranks. */
int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    int error;

    note_call();
    if (tests_due)
        stop_perhaps("MPI_Test");
    error = PMPI_Test(request, flag, status);
    return *flag && kind_fails != INJECT_STOP && fails(INJECT_MPI, "MPI_Test") ? MPI_ERR_OTHER
                                                                               : error;
}

int MPI_Testall(int n, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
    int error = PMPI_Testall(n, requests, flag, statuses);

    if (!*flag || !fails(INJECT_MPI, "MPI_Testall"))
        return error;
    for (int i = 0; i < n; i++)
        statuses[i].MPI_ERROR = i < n - 1 ? MPI_SUCCESS : MPI_ERR_OTHER;
    return n ? MPI_ERR_IN_STATUS : MPI_ERR_OTHER;
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    int error = PMPI_Iprobe(source, tag, comm, flag, status);

    return armed && kind_fails == INJECT_MPI && nth_fails ? MPI_ERR_OTHER : error;
}
