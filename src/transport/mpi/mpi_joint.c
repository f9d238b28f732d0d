/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_joint.c - collectives of MPI that are waited for as those of the control plane are. */
#include "transport/mpi/mpi_joint.h"

#include "core/agree.h"

static int is_done(void *request, int *done, int *awaited)
{
    (void)awaited;
    EPX_TRY_MPI(MPI_Test(request, done, MPI_STATUS_IGNORE));
    return EPX_SUCCESS;
}

int epx_mpi_duplicate(struct epx_comm *comm, MPI_Comm original, MPI_Comm *copy)
{
    MPI_Request request;
    int error = MPI_Comm_idup(original, copy, &request);

    if (error != MPI_SUCCESS)
        return epx_comm_break(comm, epx_fail_mpi(error, "MPI_Comm_idup"));
    return epx_comm_await(comm, (struct epx_joint){is_done, &request});
}
