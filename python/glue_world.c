/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_world.c - how the Python package begins and ends MPI, and what it asks of MPI_COMM_WORLD. */
#define _DEFAULT_SOURCE /* on_exit */
#include "glue.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FINALIZE_S = 10 }; /* how long MPI_Finalize may wait for ranks that may be dead */

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

/* After a time-out a rank may be dead, for which MPI_Finalize would wait forever; where ranks went
 * on without another one, it would for certain. */
static int finalize(void)
{
    int rc;

    if (epx_python_has_lost())
        return EPX_SUCCESS;
    if (epx_python_has_timed_out()) {
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
