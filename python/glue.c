/* SPDX-License-Identifier: BSD-3-Clause */
/* glue.c - the errors of the Python package, and how it begins and ends MPI. */
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

static _Thread_local char message[EPX_MAX_ERROR_STRING];
static _Atomic int has_timed_out;

int epx_python_fail_list(int code, const char *format, va_list values)
{
    if (code == EPX_ERR_TIMEOUT)
        has_timed_out = 1;
    vsnprintf(message, sizeof(message), format, values);
    return code;
}

int epx_python_fail(int code, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    epx_python_fail_list(code, format, values);
    va_end(values);
    return code;
}

/* Keeps the text of an error that left no communicator. */
int epx_python_fail_alone(int code)
{
    char text[EPX_MAX_ERROR_STRING];
    int length;

    EPX_Get_error_message(text, &length);
    return epx_python_fail(code, "%s", text);
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
    const struct epx_python_mpi *mpi = epx_python_mpi_there();

    return mpi && mpi->is_running();
}

/* Whether MPI can be used here; opens it. */
int epx_python_has_mpi(void)
{
    return epx_python_mpi_open() != NULL;
}

int epx_python_init(int *initialized_here)
{
    const struct epx_python_mpi *mpi = epx_python_mpi_open();

    if (!mpi)
        return EPX_ERR_NOT_INITIALIZED;
    epx_python_note_forks();
    return mpi->init(initialized_here);
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
    int rc;

    if (has_timed_out) {
        signal(SIGALRM, leave_without);
        alarm(FINALIZE_S);
    }
    rc = epx_python_mpi()->finalize();
    alarm(0);
    return rc;
}

#ifdef __GLIBC__
/* A rank that fails must not wait in MPI_Finalize for ranks that wait for it: it leaves without,
 * and its launcher ends the others. */
static void leave(int status, void *nothing)
{
    int rank_size[2];

    (void)nothing;
    if (status == 0) {
        finalize();
        return;
    }
    epx_python_mpi()->world(rank_size);
    fprintf(stderr,
            "epx[%d]: error: the program ends with exit status %d and with an open communicator; "
            "it leaves MPI unfinalized, so that the launcher ends the other ranks\n",
            rank_size[0], status);
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

/* Called when Python exits, if epx_python_init has initialized MPI. Where a communicator is open,
 * other ranks may wait for this one. */
int epx_python_finalize(void)
{
    if (epx_python_mpi()->is_finalized())
        return EPX_SUCCESS;
    return epx_python_table_is_used(&epx_python_comms) ? finalize_by_status() : finalize();
}

/* These four are called after epx_python_init; what they do says glue_mpi.h. */
int epx_python_world(int rank_size[2])
{
    epx_python_mpi()->world(rank_size);
    return EPX_SUCCESS;
}

int epx_python_node_rank(int *rank)
{
    return epx_python_mpi()->node_rank(rank);
}

int epx_python_fortran_world(void)
{
    return epx_python_mpi()->fortran_world();
}

int epx_python_gather(const void *mine, void *all, int bytes)
{
    return epx_python_mpi()->gather(mine, all, bytes);
}
