/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_entry.c - where the glue enters the module _mpi.so, and what of it is but a call of MPI. */
#include <time.h>

#include "mpi/mpi_parts.h"

enum { PAUSE_NS = 1000000 };

static int is_finalized(void)
{
    int finalized = 0;

    MPI_Finalized(&finalized);
    return finalized;
}

static int is_running(void)
{
    int initialized = 0;

    MPI_Initialized(&initialized);
    return initialized && !is_finalized();
}

static int init(int *initialized_here)
{
    int initialized = 0, level = MPI_THREAD_SINGLE;

    MPI_Initialized(&initialized);
    if (is_finalized())
        return epx_python_fail(EPX_ERR_NOT_INITIALIZED, "MPI is finalized already");
    *initialized_here = !initialized;
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

static int finalize(void)
{
    const struct timespec pause = {0, PAUSE_NS};

    while (epx_python_is_making_group())
        nanosleep(&pause, NULL);
    return MPI_Finalize() == MPI_SUCCESS ? EPX_SUCCESS
                                         : epx_python_fail(EPX_ERR_MPI, "MPI_Finalize failed");
}

static void progress(void)
{
    int flag;

    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

static void world(int rank_size[2])
{
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_size[0]);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_size[1]);
}

static int fortran_world(void)
{
    return (int)MPI_Comm_c2f(MPI_COMM_WORLD);
}

static int node_rank(int *rank)
{
    MPI_Comm node;

    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) !=
        MPI_SUCCESS)
        return epx_python_fail(EPX_ERR_MPI, "MPI_Comm_split_type failed");
    MPI_Comm_rank(node, rank);
    MPI_Comm_free(&node);
    return EPX_SUCCESS;
}

static int gather(const void *mine, void *all, int bytes)
{
    if (MPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS)
        return epx_python_fail(EPX_ERR_MPI, "MPI_Allgather of %d bytes failed", bytes);
    return EPX_SUCCESS;
}

static const struct epx_python_mpi table = {
    .is_running = is_running,
    .is_finalized = is_finalized,
    .init = init,
    .finalize = finalize,
    .progress = progress,
    .world = world,
    .fortran_world = fortran_world,
    .node_rank = node_rank,
    .gather = gather,
    .create = epx_python_mpi_create,
    .free_ranks = epx_python_ranks_free,
    .open_agreement = epx_python_agreement_open,
    .leave_agreement = epx_python_agreement_leave,
    .agree = epx_python_agree,
};

const struct epx_python_mpi *epx_python_mpi_module(const struct epx_python_core *given)
{
    epx_python_call_back(given);
    return &table;
}
