/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_particles_epx.c - the exchanges of a step by EPX, where a rank is an expert. Return codes
 * are not looked at: the communicator has MPI_COMM_WORLD's error handler, which ends the job and
 * says what is wrong, for instance that more particles come to a rank than it has room for.
 */
#include "epx_particles.h"

#include <stdlib.h>
#include <string.h>

#include "watch/mpi_watch.h"

struct exchange_own {
    EPX_Comm comm;
    EPX_Route leaving, border;
    EPX_Route_view leaving_view, border_view;
    int64_t *recv_counts, *recv_displs; /* [num_ranks] */
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
    EPX_Route_attr leaving = EPX_ROUTE_ATTR_INIT, border = EPX_ROUTE_ATTR_INIT;

    leaving.top_k = 1;
    leaving.recv_capacity = d->room;
    leaving.max_row_bytes = sizeof(struct particle);
    create_route(d, &leaving, own, &own->leaving, &own->leaving_view);
    /* Rank-major a particle arrives once, also where two or three of its tiles are the rank's. */
    border.layout = EPX_RANK_MAJOR;
    border.top_k = BORDER_TILES;
    border.recv_capacity = d->ghost_room;
    border.max_row_bytes = sizeof(struct point);
    create_route(d, &border, own, &own->border, &own->border_view);
}

/* Rows that other ranks send lie in memory that they can store into. */
static void create(const struct domain *d, struct exchange *x)
{
    struct exchange_own *own = particles_alloc(1, sizeof(*own));
    MPI_Info info;

    x->d = d;
    x->own = own;
    MPI_Info_create(&info);
    MPI_Info_set(info, "epx_memory", "system");
    EPX_Comm_create(MPI_COMM_WORLD, info, &own->comm);
    MPI_Info_free(&info);
    mpi_watch_open("epx_particles", own->comm);
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
    EPX_Route_free(&own->leaving);
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

static void migrate(struct exchange *x, const struct patch *p)
{
    struct exchange_own *own = x->own;
    EPX_Request request;

    EPX_Route_dispatch(p->leaving_ranks, p->num_leaving, p->leaving, NULL, x->arrived, NULL,
                       sizeof(struct particle), EPX_BYTE, own->leaving, EPX_STREAM_NULL, &request);
    EPX_Wait(&request, MPI_STATUS_IGNORE);
    x->num_arrived = (int)*own->leaving_view.num_rows;
}

static void halo(struct exchange *x, const struct patch *p)
{
    struct exchange_own *own = x->own;
    EPX_Request request;

    EPX_Route_dispatch(p->border_ranks, p->num_border, p->border_points, NULL, x->ghosts, NULL, 2,
                       EPX_FLOAT64, own->border, EPX_STREAM_NULL, &request);
    EPX_Wait(&request, MPI_STATUS_IGNORE);
    x->num_ghosts = (int)*own->border_view.num_rows;
}

/* The halo backwards: what was copied to several ranks gets the sum of what they answer. */
static void scatter_add(struct exchange *x, const struct patch *p)
{
    EPX_Request request;

    EPX_Dispatch_backward(p->ghost_forces, NULL, x->border_forces, NULL, 2, EPX_FLOAT64,
                          x->own->border, EPX_STREAM_NULL, &request);
    EPX_Wait(&request, MPI_STATUS_IGNORE);
}

static void collect(struct exchange *x, const struct patch *p)
{
    struct exchange_own *own = x->own;
    int last = x->d->num_ranks - 1;
    EPX_Request request;

    EPX_Alltoallv(p->packed, p->packed_counts, p->packed_displs, x->records, own->recv_counts,
                  own->recv_displs, x->d->num_ids, sizeof(struct particle), EPX_BYTE, own->comm,
                  EPX_STREAM_NULL, &request);
    EPX_Wait(&request, MPI_STATUS_IGNORE);
    x->num_records = own->recv_displs[last] + own->recv_counts[last];
}

const struct exchange_ops particles_epx = {
    .create = create,
    .destroy = destroy,
    .phases = {migrate, halo, scatter_add, collect},
};
