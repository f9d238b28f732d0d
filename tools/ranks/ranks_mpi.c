/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks_mpi.c - ranks that mpiexec started. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_maker.h"

static int mpi_start(const char *program, int *argc, char ***argv, int *rank, int *size)
{
    (void)program;
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    return 0;
}

static void mpi_finish(void)
{
    MPI_Finalize();
}

static void mpi_end_job(void)
{
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

static void mpi_barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static void mpi_allgather(const void *own, void *all, size_t bytes)
{
    MPI_Allgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void mpi_alltoall(const void *to, void *from, size_t bytes)
{
    MPI_Alltoall(to, (int)bytes, MPI_BYTE, from, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

/* An error is that of the error handler, which ends the job. */
static int mpi_create_comm(const char *const hints[], EPX_Comm *comm)
{
    MPI_Info info;
    int rc;

    MPI_Info_create(&info);
    for (int i = 0; hints[i]; i++) {
        char name[MPI_MAX_INFO_KEY + 1];
        size_t length = strcspn(hints[i], "=");

        snprintf(name, sizeof(name), "%.*s", (int)length, hints[i]);
        MPI_Info_set(info, name, hints[i] + length + 1);
    }
    rc = EPX_Comm_create(MPI_COMM_WORLD, info, comm);
    MPI_Info_free(&info);
    return rc;
}

const struct ranks_maker ranks_maker_mpi = {
    .start = mpi_start,
    .finish = mpi_finish,
    .end_job = mpi_end_job,
    .barrier = mpi_barrier,
    .allgather = mpi_allgather,
    .alltoall = mpi_alltoall,
    .create_comm = mpi_create_comm,
};
