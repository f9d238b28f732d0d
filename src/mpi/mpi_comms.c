/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_comms.c - what a communicator has of MPI: two duplicates of the one it was made from. */
#include <stdio.h>

#include "mpi/mpi_parts.h"
#include "transport/mpi/mpi_joint.h"

int epx_mpi_check_comm(MPI_Comm comm)
{
    int inter = 0;

    EPX_FAIL_IF(comm == MPI_COMM_NULL, EPX_ERR_COMM, "comm is MPI_COMM_NULL");
    EPX_TRY_MPI(MPI_Comm_test_inter(comm, &inter));
    EPX_FAIL_IF(inter, EPX_ERR_COMM, "comm is an intercommunicator");
    return EPX_SUCCESS;
}

int epx_mpi_rank(MPI_Comm comm, int *rank, int *size)
{
    EPX_TRY_MPI(MPI_Comm_rank(comm, rank));
    EPX_TRY_MPI(MPI_Comm_size(comm, size));
    return EPX_SUCCESS;
}

int epx_mpi_begin(struct epx_comm *comm, MPI_Comm original)
{
    comm->by_mpi = 1;
    comm->user = comm->traffic.comm = MPI_COMM_NULL;
    EPX_TRY(epx_mpi_duplicate(comm, original, &comm->traffic.comm));
    EPX_TRY_MPI(MPI_Comm_set_errhandler(comm->traffic.comm, MPI_ERRORS_RETURN));
    comm->control = (struct epx_control){&epx_control_mpi, &comm->traffic};
    return EPX_SUCCESS;
}

int epx_mpi_add_user(struct epx_comm *comm, MPI_Comm original)
{
    return epx_mpi_duplicate(comm, original, &comm->user);
}

/* The name that MPI prints of the communicator whose error handler it calls. */
int epx_mpi_name_user(const struct epx_comm *comm, MPI_Comm original)
{
    enum { LONGEST = MPI_MAX_OBJECT_NAME - 8 };
    char name[MPI_MAX_OBJECT_NAME] = "", text[MPI_MAX_OBJECT_NAME];
    int length;

    EPX_TRY_MPI(MPI_Comm_get_name(original, name, &length));
    snprintf(text, sizeof(text), "EPX on %.*s", LONGEST, *name ? name : "a communicator");
    EPX_TRY_MPI(MPI_Comm_set_name(comm->user, text));
    return EPX_SUCCESS;
}

void epx_mpi_close(struct epx_comm *comm)
{
    MPI_Comm *parts[] = {&comm->traffic.comm, &comm->user};

    for (int i = 0; i < 2; i++)
        if (*parts[i] != MPI_COMM_NULL)
            MPI_Comm_free(parts[i]);
}

int epx_mpi_set_errhandler(struct epx_comm *comm, MPI_Errhandler errhandler)
{
    EPX_FAIL_IF(errhandler == MPI_ERRHANDLER_NULL, EPX_ERR_ARG,
                "errhandler is MPI_ERRHANDLER_NULL");
    EPX_TRY_MPI(MPI_Comm_set_errhandler(comm->user, errhandler));
    return EPX_SUCCESS;
}
