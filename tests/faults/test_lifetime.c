/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_lifetime.c - EPX before MPI_Init and after MPI_Finalize, and objects left over in between.
 * The program does not use Check, whose reports would need MPI.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/space.h"
#include "support/suite.h"

static int errors;
static int64_t *id; /* the ids of all routings, also of those left in flight */

static void expect(const char *what, int code, int wanted)
{
    if (code == wanted)
        return;
    errors++;
    fprintf(stderr, "%s gave %d, not %d\n", what, code, wanted);
}

#undef EXPECT
#define EXPECT(call, wanted) expect(#call, call, wanted)

/* Calls what needs no MPI, which works at any time, and what needs it, which says that it is not
 * there. */
static void try_without_mpi(void)
{
    EPX_Comm comm = EPX_COMM_NULL;
    EPX_Route route = EPX_ROUTE_NULL;
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Request request = EPX_REQUEST_NULL;
    char text[EPX_MAX_ERROR_STRING];
    int major, minor, patch, length, flag;
    void *base;

    EXPECT(EPX_Get_version(&major, &minor, &patch), EPX_SUCCESS);
    EXPECT(EPX_Get_library_version(text, &length), EPX_SUCCESS);
    EXPECT(EPX_Error_string(EPX_ERR_NOT_INITIALIZED, text, &length), EPX_SUCCESS);
    EXPECT(EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm), EPX_ERR_NOT_INITIALIZED);
    EXPECT(EPX_Comm_free(&comm), EPX_ERR_NOT_INITIALIZED);
    EXPECT(EPX_Comm_rank(comm, &length), EPX_ERR_NOT_INITIALIZED);
    EXPECT(EPX_Alloc_mem(8, comm, &base), EPX_ERR_NOT_INITIALIZED);
    EXPECT(EPX_Route_create(&attr, comm, &route), EPX_ERR_NOT_INITIALIZED);
    EXPECT(EPX_Route_tokens(NULL, 0, route, EPX_STREAM_NULL, &request), EPX_ERR_NOT_INITIALIZED);
    EXPECT(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_ERR_NOT_INITIALIZED);
    EXPECT(EPX_Test(&request, &flag, MPI_STATUS_IGNORE), EPX_ERR_NOT_INITIALIZED);
    EXPECT(EPX_Waitall(1, &request, MPI_STATUSES_IGNORE), EPX_ERR_NOT_INITIALIZED);
}

static void leave_objects(const char *progress)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route;
    EPX_Request request;
    EPX_Comm comm;
    MPI_Info info;
    char image[5000];
    void *base = NULL;

    MPI_Info_create(&info);
    MPI_Info_set(info, "epx_progress", progress);
    attr.num_experts = 4;
    attr.top_k = 1;
    attr.max_tokens = 1;
    EXPECT(EPX_Comm_create(MPI_COMM_WORLD, info, &comm), EPX_SUCCESS);
    MPI_Info_free(&info);
    EXPECT(EPX_Alloc_mem(5000, comm, &base), EPX_SUCCESS);
    EXPECT(EPX_Route_create(&attr, comm, &route), EPX_SUCCESS);
    EXPECT(EPX_Route_tokens(id, 1, route, EPX_STREAM_NULL, &request), EPX_SUCCESS);
    EXPECT(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    EXPECT(EPX_Route_tokens(id, 1, route, EPX_STREAM_NULL, &request), EPX_SUCCESS);
    memset(image, 1, sizeof(image));
    space_put(base, image, sizeof(image));
}

int main(int argc, char **argv)
{
    const int64_t none = 0;
    int sum;

    try_without_mpi();
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &suite_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &suite_size);
    space_init(suite_rank); /* all ranks are on one node */
    id = space_alloc(sizeof(*id));
    space_put(id, &none, sizeof(*id));
    leave_objects("calls");
    leave_objects("thread");
    MPI_Allreduce(&errors, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    errors = 0;
    MPI_Finalize();
    try_without_mpi();
    space_free(id);
    if (suite_rank == 0)
        printf(sum + errors ? " Found %d errors\n" : " No Errors\n", sum + errors);
    return sum + errors ? EXIT_FAILURE : EXIT_SUCCESS;
}
