/* SPDX-License-Identifier: BSD-3-Clause */
/* neighbor_ways.c - ways to exchange rows with neighbours. */
#include "epx_perf/neighbor/neighbor_ways.h"

#include "ranks/ranks.h"

static void nothing(struct neighbor_box *box)
{
    (void)box;
}

static void init_persistent(struct neighbor_box *box)
{
    ranks_must(EPX_Neighbor_alltoallv_init(
        box->sent.address, box->counts.address, box->displs.address, box->window.address,
        box->came.address, box->came_at.address, box->degree, box->row_bytes, EPX_BYTE, box->graph,
        box->stream, EPX_FIXED_COUNTS, &box->persistent));
}

static void start_persistent(struct neighbor_box *box)
{
    ranks_must(EPX_Start(&box->persistent));
    ranks_must(EPX_Wait_enqueue(&box->persistent, box->stream));
}

static void free_persistent(struct neighbor_box *box)
{
    ranks_must(EPX_Request_free(&box->persistent));
}

static void exchange_once(struct neighbor_box *box)
{
    EPX_Request request;

    ranks_must(EPX_Neighbor_alltoallv(box->sent.address, box->counts.address, box->displs.address,
                                      box->window.address, box->came.address, box->came_at.address,
                                      box->degree, box->row_bytes, EPX_BYTE, box->graph,
                                      box->stream, &request));
    ranks_must(EPX_Wait_enqueue(&request, box->stream));
}

static void mpi_neighbor(struct neighbor_box *box)
{
    MPI_Neighbor_alltoallv(box->sent.address, box->int_counts, box->int_displs, MPI_BYTE,
                           box->got.address, box->int_counts, box->int_displs, MPI_BYTE,
                           box->topology);
}

static void mpi_ineighbor(struct neighbor_box *box)
{
    MPI_Request request;

    MPI_Ineighbor_alltoallv(box->sent.address, box->int_counts, box->int_displs, MPI_BYTE,
                            box->got.address, box->int_counts, box->int_displs, MPI_BYTE,
                            box->topology, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* What goes out by one face comes in by the opposite one, but with EPX by the same place of the
 * lists: the k-th row to a rank is the k-th from it here, too. */
static void init_by_hand(struct neighbor_box *box)
{
    for (int i = 0; i < box->degree; i++) {
        MPI_Recv_init((char *)box->got.address + box->int_displs[i], box->row_bytes, MPI_BYTE,
                      box->faces[i], 0, box->topology, &box->requests[i]);
        MPI_Send_init((char *)box->sent.address + box->int_displs[i], box->row_bytes, MPI_BYTE,
                      box->faces[i], 0, box->topology, &box->requests[box->degree + i]);
    }
}

/* gcc takes what MPICH has for MPI_STATUSES_IGNORE for an array that is too short. */
static void start_by_hand(struct neighbor_box *box)
{
    MPI_Status statuses[2 * NEIGHBOR_MOST_DEGREE];

    MPI_Startall(2 * box->degree, box->requests);
    MPI_Waitall(2 * box->degree, box->requests, statuses);
}

static void free_by_hand(struct neighbor_box *box)
{
    for (int i = 0; i < 2 * box->degree; i++)
        MPI_Request_free(&box->requests[i]);
}

const struct neighbor_way neighbor_ways[] = {
    {"persistent", 1, init_persistent, start_persistent, free_persistent},
    {"once", 1, nothing, exchange_once, nothing},
    {"mpi-neighbor", 0, nothing, mpi_neighbor, nothing},
    {"mpi-ineighbor", 0, nothing, mpi_ineighbor, nothing},
    {"mpi-persistent", 0, init_by_hand, start_by_hand, free_by_hand},
    {NULL, 0, NULL, NULL, NULL},
};
