/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fatal.c - with MPI_ERRORS_ARE_FATAL, MPI's default, an error of EPX ends the job: the
 * run expects it to die after its first line, with the error's text.
 */
#include <stdio.h>

#include "epx.h"

int main(int argc, char **argv)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route;
    EPX_Comm comm;

    MPI_Init(&argc, &argv);
    if (EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm) != EPX_SUCCESS)
        return 1;
    printf("about to fail\n");
    fflush(stdout);
    attr.num_experts = 0;
    EPX_Route_create(&attr, comm, &route);
    printf(" No Errors\n");
    MPI_Finalize();
    return 0;
}
