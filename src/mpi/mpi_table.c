/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_table.c - what the module libepx_mpi gives libepx. */
#include "mpi/mpi_parts.h"
#include "transport/transport.h"

static int check(void)
{
    int initialized = 0, finalized = 1;

    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    EPX_FAIL_IF(!initialized, EPX_ERR_NOT_INITIALIZED, "called before MPI_Init");
    EPX_FAIL_IF(finalized, EPX_ERR_NOT_INITIALIZED, "called after MPI_Finalize");
    return EPX_SUCCESS;
}

static int works(void)
{
    int initialized = 0, finalized = 1;

    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized && !finalized;
}

static void progress(void)
{
    int flag;

    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

const struct epx_mpi epx_mpi_table = {
    .version = EPX_MPI_MODULE_VERSION,
    .transport = &epx_transport_mpi,
    .check = check,
    .works = works,
    .progress = progress,
    .set_up = epx_mpi_set_up,
    .call_errhandler = epx_mpi_call_errhandler,
    .check_comm = epx_mpi_check_comm,
    .rank = epx_mpi_rank,
    .begin = epx_mpi_begin,
    .add_user = epx_mpi_add_user,
    .name_user = epx_mpi_name_user,
    .close = epx_mpi_close,
    .set_errhandler = epx_mpi_set_errhandler,
    .degrees = epx_mpi_degrees,
    .neighbors = epx_mpi_neighbors,
    .read_info = epx_mpi_read_info,
    .create_info = epx_mpi_create_info,
    .set_info = epx_mpi_set_info,
    .free_info = epx_mpi_free_info,
    .set_elements = epx_mpi_set_elements,
    .get_elements = epx_mpi_get_elements,
    .datatype_name = epx_mpi_datatype_name,
    .comm_of = epx_mpi_comm_of,
    .info_of = epx_mpi_info_of,
    .errhandler_of = epx_mpi_errhandler_of,
    .handle_of = epx_mpi_handle_of,
};
