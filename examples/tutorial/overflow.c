/* SPDX-License-Identifier: BSD-3-Clause */
/* overflow.c - more rows come than a receive buffer has room for. */
#include <epx.h>
#include <stdio.h>

enum { TOKENS = 6, EXPERTS = 2 };

static EPX_Comm comm;
static int rank;

/* All ranks send all tokens to expert 1, which is on rank 1. */
static int route_tokens(EPX_Route route)
{
    static const int64_t ids[TOKENS] = {1, 1, 1, 1, 1, 1};
    EPX_Request request = EPX_REQUEST_NULL;

    EPX_Route_tokens(ids, TOKENS, route, EPX_STREAM_NULL, &request);
    return EPX_Wait(&request, MPI_STATUS_IGNORE);
}

/* Tells what became of a routing; answers the rows it wanted here. */
static int64_t run(const char *what, int64_t capacity,
                   EPX_Overflow overflow)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Route route = EPX_ROUTE_NULL;
    int64_t required;
    int error, lost = 0;

    attr.num_experts = EXPERTS;
    attr.top_k = 1;
    attr.max_tokens = TOKENS;
    attr.recv_capacity = capacity;
    attr.overflow = overflow;
    EPX_Route_create(&attr, comm, &route);
    error = route_tokens(route);
    EPX_Route_get_view(route, &view);
    for (int t = 0; t < TOKENS; t++)
        lost += view.slots[t] < 0;
    required = view.required_rows[0];
    printf("%s, rank %d: %s, %lld of %lld rows, %d tokens not sent\n",
           what, rank, error == EPX_ERR_TRUNCATE ? "overflow" : "good",
           (long long)view.num_rows[0], (long long)required, lost);
    EPX_Route_free(&route);
    return required;
}

int main(int argc, char **argv)
{
    int64_t required;

    MPI_Init(&argc, &argv);
    EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
    EPX_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    EPX_Comm_rank(comm, &rank);
    required = run("error", 8, EPX_OVERFLOW_ERROR);
    run("drop", 8, EPX_OVERFLOW_DROP);
    if (required < 1)
        required = 1; /* 0 would be the worst case */
    run("grown", required, EPX_OVERFLOW_ERROR);
    EPX_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
