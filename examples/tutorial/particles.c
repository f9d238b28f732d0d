/* SPDX-License-Identifier: BSD-3-Clause */
/* particles.c - particles move to the rank of their part of space. */
#include <epx.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64, EACH = 8, STEPS = 3 };

struct particle {
    double place, speed;
    int64_t name;
};

/* Space is a ring from 0 to size; rank r has from r to r + 1. */
static void move(struct particle *p, int64_t *owner, int size)
{
    p->place += p->speed;
    if (p->place >= size)
        p->place -= size;
    if (p->place < 0)
        p->place += size;
    *owner = (int64_t)p->place;
}

/* Sends each particle to its rank; answers how many are here then. */
static int migrate(EPX_Route route, const int64_t *owners, int number,
                   const struct particle *from, struct particle *to)
{
    EPX_Request requests[2];
    MPI_Status statuses[2];
    int arrived;

    EPX_Route_tokens(owners, number, route, EPX_STREAM_NULL,
                     &requests[0]);
    EPX_Dispatch(from, NULL, to, NULL, (int)sizeof(*from), EPX_BYTE,
                 route, EPX_STREAM_NULL, &requests[1]);
    EPX_Waitall(2, requests, statuses);
    MPI_Get_count(&statuses[1], MPI_BYTE, &arrived);
    return arrived;
}

int main(int argc, char **argv)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;
    EPX_Comm comm = EPX_COMM_NULL;
    struct particle *here, *next, *old;
    int64_t owners[MOST];
    int rank, size, number = EACH;

    MPI_Init(&argc, &argv);
    EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
    EPX_Comm_rank(comm, &rank);
    EPX_Comm_size(comm, &size);
    attr.num_experts = size; /* "expert" r is rank r */
    attr.top_k = 1;          /* a particle goes to one place */
    attr.max_tokens = MOST;
    attr.recv_capacity = MOST;
    EPX_Route_create(&attr, comm, &route);
    EPX_Alloc_mem(MOST * sizeof(*here), comm, &here);
    EPX_Alloc_mem(MOST * sizeof(*here), comm, &next);
    for (int i = 0; i < EACH; i++)
        here[i] =
            (struct particle){rank + (i + .5) / EACH,
                              (i - 2 + 3 * rank) / 8., rank * EACH + i};

    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < number; i++)
            move(&here[i], &owners[i], size);
        number = migrate(route, owners, number, here, next);
        old = here;
        here = next;
        next = old;
        printf("step %d, rank %d: %d particles, first %d, last %d\n",
               step, rank, number, number ? (int)here[0].name : -1,
               number ? (int)here[number - 1].name : -1);
    }
    EPX_Free_mem(next, comm); /* on all ranks the same of the two */
    EPX_Free_mem(here, comm);
    EPX_Route_free(&route);
    EPX_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
