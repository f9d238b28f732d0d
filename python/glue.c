/* SPDX-License-Identifier: BSD-3-Clause */
/* glue.c - the errors of the Python package, and what it asks of MPI itself. */
#define _DEFAULT_SOURCE /* on_exit */
#include "glue.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { FINALIZE_S = 10 }; /* how long MPI_Finalize may wait for ranks that may be dead */
enum { PAUSE_NS = 1000000 };

static _Thread_local char message[EPX_MAX_ERROR_STRING];
static _Atomic int has_timed_out;

int epx_python_fail(int code, const char *format, ...)
{
    va_list values;

    if (code == EPX_ERR_TIMEOUT)
        has_timed_out = 1;
    va_start(values, format);
    vsnprintf(message, sizeof(message), format, values);
    va_end(values);
    return code;
}

/* The error of a communicator or a route that this process does not have. */
int epx_python_fail_gone(int code, const char *text)
{
    if (epx_python_is_child())
        text = "this process was forked off: communicators and routes are its parent's";
    return epx_python_fail(code, "%s", text);
}

/* Keeps the text of an error that a call of EPX on the communicator returned; returns the code. */
int epx_python_check(const struct epx_python_comm *comm, int code)
{
    int length;

    if (code == EPX_ERR_TIMEOUT)
        has_timed_out = 1;
    if (code != EPX_SUCCESS)
        EPX_Comm_get_error_message(comm->comm, message, &length);
    return code;
}

void epx_python_message(char text[EPX_MAX_ERROR_STRING])
{
    snprintf(text, EPX_MAX_ERROR_STRING, "%s", message);
}

int64_t epx_python_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int epx_python_is_initialized(void)
{
    int initialized = 0, finalized = 0;

    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized && !finalized;
}

int epx_python_init(int *initialized_here)
{
    int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;

    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized)
        return epx_python_fail(EPX_ERR_NOT_INITIALIZED, "MPI is finalized already");
    *initialized_here = !initialized;
    epx_python_note_forks();
    if (initialized)
        MPI_Query_thread(&level);
    else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return epx_python_fail(EPX_ERR_MPI, "MPI_Init_thread failed");
    if (level < MPI_THREAD_SERIALIZED)
        return epx_python_fail(EPX_ERR_UNSUPPORTED,
                               "MPI has thread level %d, want MPI_THREAD_SERIALIZED (%d) or more: "
                               "gradients are computed by other threads",
                               level, MPI_THREAD_SERIALIZED);
    return EPX_SUCCESS;
}

static void leave_without(int number)
{
    static const char text[] = "epx: a rank is dead or late: this one leaves MPI unfinalized\n";
    const ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);

    (void)number;
    _exit(written < 0 ? 2 : 1);
}

/* After a time-out a rank may be dead, for which MPI_Finalize would wait forever. */
static int finalize(void)
{
    const struct timespec pause = {0, PAUSE_NS};
    int rc;

    if (has_timed_out) {
        signal(SIGALRM, leave_without);
        alarm(FINALIZE_S);
    }
    while (epx_python_is_making_group())
        nanosleep(&pause, NULL);
    rc = MPI_Finalize();
    alarm(0);
    return rc == MPI_SUCCESS ? EPX_SUCCESS : epx_python_fail(EPX_ERR_MPI, "MPI_Finalize failed");
}

#ifdef __GLIBC__
/* A rank that fails must not wait in MPI_Finalize for ranks that wait for it: it leaves without,
 * and its launcher ends the others. */
static void leave(int status, void *nothing)
{
    int rank;

    (void)nothing;
    if (status == 0) {
        finalize();
        return;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr,
            "epx[%d]: error: the program ends with exit status %d and with an open communicator; "
            "it leaves MPI unfinalized, so that the launcher ends the other ranks\n",
            rank, status);
}

/* Python tells no exit handler the exit status, but C does. This handler is the last that is
 * registered, hence the first to run: before those of CUDA and of MPI. */
static int finalize_by_status(void)
{
    return on_exit(leave, NULL) == 0 ? EPX_SUCCESS : finalize();
}
#else
static int finalize_by_status(void)
{
    return finalize();
}
#endif

/* Called when Python exits. Where a communicator is open, other ranks may wait for this one. */
int epx_python_finalize(void)
{
    int finalized = 1;

    MPI_Finalized(&finalized);
    if (finalized)
        return EPX_SUCCESS;
    return epx_python_table_is_used(&epx_python_comms) ? finalize_by_status() : finalize();
}

/* This rank in MPI_COMM_WORLD, and the ranks there. */
int epx_python_world(int rank_size[2])
{
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_size[0]);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_size[1]);
    return EPX_SUCCESS;
}

/* This rank among those of its node; collective over MPI_COMM_WORLD. */
int epx_python_node_rank(int *rank)
{
    MPI_Comm node;

    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) !=
        MPI_SUCCESS)
        return epx_python_fail(EPX_ERR_MPI, "MPI_Comm_split_type failed");
    MPI_Comm_rank(node, rank);
    MPI_Comm_free(&node);
    return EPX_SUCCESS;
}

int epx_python_fortran_world(void)
{
    return (int)MPI_Comm_c2f(MPI_COMM_WORLD);
}

int epx_python_gather(const void *mine, void *all, int bytes)
{
    if (MPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS)
        return epx_python_fail(EPX_ERR_MPI, "MPI_Allgather of %d bytes failed", bytes);
    return EPX_SUCCESS;
}
