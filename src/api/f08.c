/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * f08.c - between the Fortran module epx_f08 and the public functions. It calls EPX_X and not
 * PEPX_X: a tool sees the calls of Fortran programs too.
 */
#include "api/f08.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"

int epx_f08_comm_create(int comm, int info, EPX_Comm *newcomm)
{
    EPX_TRY(epx_api_enter_mpi("EPX_Comm_create"));
    return EPX_Comm_create(epx_mpi_open()->comm_of(comm), epx_mpi_open()->info_of(info), newcomm);
}

int epx_f08_comm_get_info(EPX_Comm comm, int *info_used)
{
    MPI_Info info;

    EPX_TRY(EPX_Comm_get_info(comm, &info));
    *info_used = epx_mpi_open()->handle_of(info);
    return EPX_SUCCESS;
}

int epx_f08_comm_set_errhandler(EPX_Comm comm, int errhandler)
{
    EPX_TRY(epx_api_enter_mpi("EPX_Comm_set_errhandler"));
    return EPX_Comm_set_errhandler(comm, epx_mpi_open()->errhandler_of(errhandler));
}

/* EPX sets MPI_ERROR wherever it sets a status, to a code that is not negative. */
static void mark_untouched(MPI_Status *status)
{
    status->MPI_ERROR = -1;
}

static void read_status(MPI_Status *status, struct epx_f08_outcome *outcome)
{
    const struct epx_mpi *mpi = epx_api_mpi();

    outcome->error = status->MPI_ERROR;
    outcome->rows = outcome->error >= 0 && mpi ? mpi->get_elements(status) : 0;
}

int epx_f08_wait(EPX_Request *request, struct epx_f08_outcome *outcome)
{
    MPI_Status status;
    int rc;

    mark_untouched(&status);
    rc = EPX_Wait(request, &status);
    read_status(&status, outcome);
    return rc;
}

int epx_f08_test(EPX_Request *request, int *flag, struct epx_f08_outcome *outcome)
{
    MPI_Status status;
    int rc;

    mark_untouched(&status);
    rc = EPX_Test(request, flag, &status);
    read_status(&status, outcome);
    return rc;
}

int epx_f08_waitall(int n, EPX_Request requests[], struct epx_f08_outcome outcomes[])
{
    MPI_Status *statuses = epx_memory_zeroed((size_t)(n > 0 ? n : 1), sizeof(*statuses));
    int rc;

    epx_status_enter("EPX_Waitall");
    for (int i = 0; i < n; i++)
        outcomes[i].error = -1;
    EPX_API_FAIL_IF(!statuses, EPX_ERR_NO_MEM, "no memory for %d statuses", n);
    for (int i = 0; i < n; i++)
        mark_untouched(&statuses[i]);
    rc = EPX_Waitall(n, requests, statuses);
    for (int i = 0; i < n; i++)
        read_status(&statuses[i], &outcomes[i]);
    free(statuses);
    return rc;
}

EPX_Comm epx_f08_graph_comm(EPX_Graph graph)
{
    return epx_handle_is(graph, EPX_HANDLE_GRAPH) ? graph->comm : EPX_COMM_NULL;
}

int epx_f08_refuse(const char *function, const char *buffer, EPX_Comm comm, EPX_Route route)
{
    static _Thread_local char name[32]; /* messages name the function after this call too */

    snprintf(name, sizeof(name), "%s", function);
    EPX_TRY(epx_api_enter(name));
    if (route) {
        EPX_TRY(epx_api_route(route));
        comm = route->comm;
    }
    EPX_TRY(epx_api_comm(comm));
    return epx_api_return(comm, epx_fail(EPX_ERR_BUFFER, "%s is not contiguous", buffer));
}
