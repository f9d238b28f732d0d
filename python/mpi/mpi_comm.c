/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_comm.c - makes communicators of EPX from one of MPI, or from ranks of MPI_COMM_WORLD. */
#include "mpi/mpi_parts.h"

/* Different ranks of MPI_COMM_WORLD, of which this is one, as a communicator of their own;
 * collective over them alone. */
static int comm_of_ranks(const struct epx_python_origin *origin, MPI_Comm *comm)
{
    const int *ranks = origin->ranks, num_ranks = origin->num_ranks;
    MPI_Group world, group;
    int rc;

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, num_ranks, ranks, &group);
    rc = epx_python_group_comm(group, EPX_PYTHON_FOR_EPX, origin->timeout_ms, comm);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return rc;
}

static MPI_Info info_of(const char *const hints[])
{
    MPI_Info info;

    MPI_Info_create(&info);
    for (int i = 0; hints[i]; i += 2)
        MPI_Info_set(info, hints[i], hints[i + 1]);
    return info;
}

/* The communicator inherits MPI_ERRORS_RETURN: an error is an exception, and ends no job. */
static int create(MPI_Comm comm, const char *const hints[], EPX_Comm *newcomm)
{
    MPI_Info info = info_of(hints);
    MPI_Errhandler handler;
    int rc;

    MPI_Comm_get_errhandler(comm, &handler);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    rc = EPX_Comm_create(comm, info, newcomm);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    MPI_Info_free(&info);
    return rc == EPX_SUCCESS ? rc : epx_python_fail_alone(rc);
}

int epx_python_mpi_create(const struct epx_python_origin *origin, const char *const hints[],
                          EPX_Comm *newcomm, struct epx_python_ranks **ranks)
{
    MPI_Comm comm = MPI_COMM_NULL;
    int rc = EPX_SUCCESS;

    if (origin->num_ranks > 0)
        rc = comm_of_ranks(origin, &comm);
    else
        comm = MPI_Comm_f2c((MPI_Fint)origin->fortran);
    if (rc != EPX_SUCCESS)
        return rc;
    if (comm == MPI_COMM_NULL)
        return epx_python_fail(EPX_ERR_COMM, "the communicator of MPI is MPI_COMM_NULL");
    rc = epx_python_ranks_of(comm, ranks);
    if (rc == EPX_SUCCESS)
        rc = create(comm, hints, newcomm);
    if (rc != EPX_SUCCESS) {
        epx_python_ranks_free(*ranks);
        *ranks = NULL;
    }
    /* After a time-out a duplication of comm may be under way: if comm is freed then, MPI_Finalize
     * of Open MPI 4.1 writes into memory that it has freed. */
    if (origin->num_ranks > 0 && rc != EPX_ERR_TIMEOUT)
        MPI_Comm_free(&comm);
    return rc;
}
