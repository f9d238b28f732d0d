/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_particles_epx.c - the exchanges of a step by EPX: particles move along the edges of a graph
 * of ranks, their copies by a route where a rank is an expert, and records between all ranks. What
 * has the same buffers in each step is a persistent request, made in the first one. Return codes
 * are not looked at: the communicator has MPI_COMM_WORLD's error handler, which ends the job and
 * says what is wrong, for instance that more particles come to a rank than it has room for. Where
 * ranks may be lost epx_particles_lost.c asks the communicator after each exchange.
 */
#include "epx_particles.h"

#include <stdlib.h>
#include <string.h>

#include "watch/mpi_watch.h"

struct exchange_own {
    EPX_Comm comm;
    EPX_Graph beside; /* ranks that particles may leave for, or come from, in a step */
    int num_beside;
    int *rank_beside;  /* [num_beside] in order */
    int *place_beside; /* [num_ranks] a rank's place there, or -1 */
    EPX_Request migration, collection;
    EPX_Route border;
    EPX_Route_view border_view;
    struct particle *leaving;               /* by rank */
    int64_t *leave_counts, *leave_displs;   /* [num_beside] */
    int64_t *arrive_counts, *arrive_displs; /* [num_beside] */
    int64_t *recv_counts, *recv_displs;     /* [num_ranks] */
};

/* With one expert a rank the ids are ranks, and rows arrive by source rank. */
static void create_route(const struct domain *d, EPX_Route_attr *attr, struct exchange_own *own,
                         EPX_Route *route, EPX_Route_view *view)
{
    EPX_Route_view empty = EPX_ROUTE_VIEW_INIT;

    attr->num_experts = d->num_ranks;
    attr->max_tokens = d->border_room;
    attr->index_bits = 32;
    EPX_Route_create(attr, own->comm, route);
    *view = empty;
    EPX_Route_get_view(*route, view);
}

static void create_routes(const struct domain *d, struct exchange_own *own)
{
    EPX_Route_attr border = EPX_ROUTE_ATTR_INIT;

    /* Rank-major a particle arrives once, also where two or three of its tiles are the rank's. */
    border.layout = EPX_RANK_MAJOR;
    border.top_k = BORDER_TILES;
    border.recv_capacity = d->ghost_room;
    border.max_row_bytes = sizeof(struct point);
    create_route(d, &border, own, &own->border, &own->border_view);
}

enum { MOST_TILES_A_STEP = 2 };

/* Notes the owners of the tiles that a particle may reach from a tile in a step. */
static void note_beside(const struct domain *d, int tile, int *beside)
{
    const int reach = MOST_TILES_A_STEP;

    for (int row = -reach; row <= reach; row++)
        for (int column = -reach; column <= reach; column++) {
            int owner = d->owners[particles_tile_beside(d, d->places[tile], column, row)];

            beside[owner] = owner != d->rank;
        }
}

/* If one rank can be reached from another, so can that one from it: one list is for both ways. */
static void create_graph(const struct domain *d, struct exchange_own *own)
{
    own->place_beside = particles_alloc(d->num_ranks, sizeof(int));
    own->rank_beside = particles_alloc(d->num_ranks, sizeof(int));
    for (int t = 0; t < d->num_local_tiles; t++)
        note_beside(d, d->first_tile + t, own->place_beside);
    for (int r = 0; r < d->num_ranks; r++) {
        if (own->place_beside[r])
            own->rank_beside[own->num_beside] = r;
        own->place_beside[r] = own->place_beside[r] ? own->num_beside++ : -1;
    }
    EPX_Graph_create_adjacent(own->comm, own->num_beside, own->rank_beside, own->num_beside,
                              own->rank_beside, &own->beside);
    own->leaving = particles_alloc(d->border_room, sizeof(*own->leaving));
    own->leave_counts = particles_alloc(own->num_beside, sizeof(int64_t));
    own->leave_displs = particles_alloc(own->num_beside, sizeof(int64_t));
    own->arrive_counts = particles_alloc(own->num_beside, sizeof(int64_t));
    own->arrive_displs = particles_alloc(own->num_beside, sizeof(int64_t));
}

static void free_graph(struct exchange_own *own)
{
    if (own->migration != EPX_REQUEST_NULL)
        EPX_Request_free(&own->migration);
    if (own->collection != EPX_REQUEST_NULL)
        EPX_Request_free(&own->collection);
    EPX_Graph_free(&own->beside);
    free(own->rank_beside);
    free(own->place_beside);
    free(own->leaving);
    free(own->leave_counts);
    free(own->leave_displs);
    free(own->arrive_counts);
    free(own->arrive_displs);
}

static void create_comm(struct exchange_own *own)
{
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, "epx_memory", "system");
    EPX_Comm_create(MPI_COMM_WORLD, info, &own->comm);
    MPI_Info_free(&info);
    mpi_watch_open("epx_particles", own->comm);
}

/* Rows that other ranks send lie in memory that they can store into. */
static void create(const struct domain *d, struct exchange *x)
{
    struct exchange_own *own = particles_alloc(1, sizeof(*own));

    x->d = d;
    x->own = own;
    own->comm = d->comm;
    if (own->comm == EPX_COMM_NULL)
        create_comm(own);
    create_graph(d, own);
    create_routes(d, own);
    EPX_Alloc_mem(d->room * (MPI_Aint)sizeof(*x->arrived), own->comm, &x->arrived);
    EPX_Alloc_mem(d->ghost_room * (MPI_Aint)sizeof(*x->ghosts), own->comm, &x->ghosts);
    EPX_Alloc_mem(d->num_ids * (MPI_Aint)sizeof(*x->records), own->comm, &x->records);
    x->border_forces = particles_alloc(d->border_room, sizeof(*x->border_forces));
    own->recv_counts = particles_alloc(d->num_ranks, sizeof(int64_t));
    own->recv_displs = particles_alloc(d->num_ranks, sizeof(int64_t));
}

static void destroy(struct exchange *x)
{
    struct exchange_own *own = x->own;

    EPX_Free_mem(x->records, own->comm);
    EPX_Free_mem(x->ghosts, own->comm);
    EPX_Free_mem(x->arrived, own->comm);
    EPX_Route_free(&own->border);
    free_graph(own);
    if (own->comm != x->d->comm)
        EPX_Comm_free(&own->comm);
    free(x->border_forces);
    free(own->recv_counts);
    free(own->recv_displs);
    free(own);
}

void particles_epx_transport(const struct exchange *x, char name[MPI_MAX_INFO_VAL + 1])
{
    MPI_Info info;
    int found = 0;

    EPX_Comm_get_info(x->own->comm, &info);
    MPI_Info_get(info, "epx_transport", MPI_MAX_INFO_VAL, name, &found);
    MPI_Info_free(&info);
    if (!found)
        strcpy(name, "unknown");
}

/* The place in the list of ranks beside this one that a particle leaves for. */
static int place_of(const struct exchange *x, const struct patch *p, int i)
{
    int place = x->own->place_beside[p->leaving_ranks[i]];

    if (place < 0)
        particles_fail("a particle of rank %d moves more than %d tiles in a step, to rank %d",
                       x->d->rank, MOST_TILES_A_STEP, (int)p->leaving_ranks[i]);
    return place;
}

/* Sorts the particles that leave by rank. */
static void pack_leaving(const struct exchange *x, const struct patch *p)
{
    struct exchange_own *own = x->own;
    int64_t first = 0;

    memset(own->leave_counts, 0, (size_t)own->num_beside * sizeof(*own->leave_counts));
    for (int i = 0; i < p->num_leaving; i++)
        own->leave_counts[place_of(x, p, i)]++;
    for (int k = 0; k < own->num_beside; k++) {
        own->leave_displs[k] = first;
        first += own->leave_counts[k];
    }
    for (int i = 0; i < p->num_leaving; i++)
        own->leaving[own->leave_displs[place_of(x, p, i)]++] = p->leaving[i];
    for (int k = 0; k < own->num_beside; k++)
        own->leave_displs[k] -= own->leave_counts[k];
}

/* Who may move where is fixed, how many do is not. */
static void migrate(struct exchange *x, const struct patch *p)
{
    struct exchange_own *own = x->own;
    const int last = own->num_beside - 1;

    if (own->migration == EPX_REQUEST_NULL)
        EPX_Neighbor_alltoallv_init(own->leaving, own->leave_counts, own->leave_displs, x->arrived,
                                    own->arrive_counts, own->arrive_displs, x->d->room,
                                    sizeof(struct particle), EPX_BYTE, own->beside, EPX_STREAM_NULL,
                                    0, &own->migration);
    pack_leaving(x, p);
    EPX_Start(&own->migration);
    EPX_Wait(&own->migration, MPI_STATUS_IGNORE);
    x->num_arrived = last < 0 ? 0 : (int)(own->arrive_displs[last] + own->arrive_counts[last]);
}

static void halo(struct exchange *x, const struct patch *p)
{
    struct exchange_own *own = x->own;
    EPX_Request request = EPX_REQUEST_NULL;

    EPX_Route_dispatch(p->border_ranks, p->num_border, p->border_points, NULL, x->ghosts, NULL, 2,
                       EPX_FLOAT64, own->border, EPX_STREAM_NULL, &request);
    EPX_Wait(&request, MPI_STATUS_IGNORE);
    x->num_ghosts = (int)*own->border_view.num_rows;
}

/* The halo backwards: what was copied to several ranks gets the sum of what they answer. */
static void scatter_add(struct exchange *x, const struct patch *p)
{
    EPX_Request request = EPX_REQUEST_NULL;

    EPX_Dispatch_backward(p->ghost_forces, NULL, x->border_forces, NULL, 2, EPX_FLOAT64,
                          x->own->border, EPX_STREAM_NULL, &request);
    EPX_Wait(&request, MPI_STATUS_IGNORE);
}

static void collect(struct exchange *x, const struct patch *p)
{
    struct exchange_own *own = x->own;
    int last = x->d->num_ranks - 1;

    if (own->collection == EPX_REQUEST_NULL)
        EPX_Alltoallv_init(p->packed, p->packed_counts, p->packed_displs, x->records,
                           own->recv_counts, own->recv_displs, x->d->num_ids,
                           sizeof(struct particle), EPX_BYTE, own->comm, EPX_STREAM_NULL, 0,
                           &own->collection);
    EPX_Start(&own->collection);
    EPX_Wait(&own->collection, MPI_STATUS_IGNORE);
    x->num_records = own->recv_displs[last] + own->recv_counts[last];
}

const struct exchange_ops particles_epx = {
    .create = create,
    .destroy = destroy,
    .phases = {migrate, halo, scatter_add, collect},
};
