/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fatal.c - with MPI_ERRORS_ARE_FATAL, MPI's default, an error of EPX ends the job: the
 * run expects it to die after its first line, with the error's text. CASE in the environment says
 * which error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "epx.h"

static int is_case(const char *name)
{
    const char *wanted = getenv("CASE");

    return wanted && strcmp(wanted, name) == 0;
}

/* The README's first program relies on it: there is no communicator to go on with. */
static void fail_to_create(EPX_Comm *comm)
{
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, "epx_memory", "system");
    MPI_Info_set(info, "epx_transport", "nccl");
    EPX_Comm_create(MPI_COMM_WORLD, info, comm);
}

static void use_attributes(EPX_Comm comm)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;

    attr.num_experts = 0;
    EPX_Route_create(&attr, comm, &route);
}

static void use_freed(EPX_Comm *comm)
{
    EPX_Comm freed = *comm;
    int size;

    EPX_Comm_free(comm);
    EPX_Comm_size(freed, &size);
}

int main(int argc, char **argv)
{
    EPX_Comm comm = EPX_COMM_NULL;
    int size;

    MPI_Init(&argc, &argv);
    if (!is_case("null"))
        EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
    /* MPICH takes the buffer from stdout: printf, which is puts here, would write the end of the
     * line on its own, and another rank's error could come between. */
    fputs("about to fail\n", stdout);
    fflush(stdout);
    if (is_case("create"))
        fail_to_create(&comm);
    else if (is_case("null"))
        EPX_Comm_size(comm, &size);
    else if (is_case("freed"))
        use_freed(&comm);
    else
        use_attributes(comm);
    printf(" No Errors\n");
    MPI_Finalize();
    return 0;
}
