/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_unload.c - a plug-in opens libepx, uses it and is closed before MPI_Finalize, which calls
 * what libepx has left with MPI: so libepx stays in the process. The program is not linked with
 * libepx.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct epx_comm *comm_handle;

/* Makes a communicator, frees it if asked to, and closes the library; returns 1 if that worked. */
static int use_library(int frees)
{
    void *library = dlopen(EPX_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    int (*create)(MPI_Comm, MPI_Info, comm_handle *) = NULL;
    int (*release)(comm_handle *) = NULL;
    comm_handle comm = NULL;

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 0;
    }
    *(void **)&create = dlsym(library, "EPX_Comm_create");
    *(void **)&release = dlsym(library, "EPX_Comm_free");
    if (create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm) != 0)
        return 0;
    if (frees && release(&comm) != 0)
        return 0;
    return dlclose(library) == 0;
}

int main(int argc, char **argv)
{
    int works, rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    works = use_library(1) && use_library(0);
    MPI_Allreduce(MPI_IN_PLACE, &works, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0)
        printf(works ? " No Errors\n" : " Found errors\n");
    return works ? EXIT_SUCCESS : EXIT_FAILURE;
}
