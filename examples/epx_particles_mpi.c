/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_particles_mpi.c - the exchanges of a step by hand: counts by MPI_Alltoall, rows by
 * MPI_Alltoallv, and around them the packing by rank that these want.
 */
#include "epx_particles.h"

#include <stdlib.h>
#include <string.h>

/* Counts and displacements of rows for and from each rank. */
struct exchange_own {
    MPI_Datatype particle, point;
    int *send_counts, *send_displs, *recv_counts, *recv_displs; /* [num_ranks] */
    int *border_send_counts, *border_send_displs;               /* [num_ranks] kept from the halo */
    int *border_recv_counts, *border_recv_displs;
    int *border_rows;        /* [ghosts sent] index in the border of each */
    struct particle *packed; /* particles that leave, by rank */
    struct point *points;    /* ghosts sent, and the forces on them */
};

static int *alloc_counts(const struct domain *d)
{
    return particles_alloc(d->num_ranks, sizeof(int));
}

static void create_types(struct exchange_own *own)
{
    MPI_Type_contiguous(sizeof(struct particle), MPI_BYTE, &own->particle);
    MPI_Type_commit(&own->particle);
    MPI_Type_contiguous(2, MPI_DOUBLE, &own->point);
    MPI_Type_commit(&own->point);
}

static void create_counts(const struct domain *d, struct exchange_own *own)
{
    own->send_counts = alloc_counts(d);
    own->send_displs = alloc_counts(d);
    own->recv_counts = alloc_counts(d);
    own->recv_displs = alloc_counts(d);
    own->border_send_counts = alloc_counts(d);
    own->border_send_displs = alloc_counts(d);
    own->border_recv_counts = alloc_counts(d);
    own->border_recv_displs = alloc_counts(d);
}

static void create(const struct domain *d, struct exchange *x)
{
    struct exchange_own *own = particles_alloc(1, sizeof(*own));
    int64_t room = d->border_room, sent = room * BORDER_TILES;

    x->d = d;
    x->own = own;
    create_types(own);
    create_counts(d, own);
    own->border_rows = particles_alloc(sent, sizeof(int));
    own->points = particles_alloc(sent, sizeof(struct point));
    own->packed = particles_alloc(room, sizeof(struct particle));
    x->arrived = particles_alloc(d->room, sizeof(*x->arrived));
    x->ghosts = particles_alloc(d->ghost_room, sizeof(*x->ghosts));
    x->records = particles_alloc(d->num_ids, sizeof(*x->records));
    x->border_forces = particles_alloc(room, sizeof(*x->border_forces));
}

static void free_counts(struct exchange_own *own)
{
    free(own->send_counts);
    free(own->send_displs);
    free(own->recv_counts);
    free(own->recv_displs);
    free(own->border_send_counts);
    free(own->border_send_displs);
    free(own->border_recv_counts);
    free(own->border_recv_displs);
}

static void destroy(struct exchange *x)
{
    struct exchange_own *own = x->own;

    MPI_Type_free(&own->particle);
    MPI_Type_free(&own->point);
    free_counts(own);
    free(own->border_rows);
    free(own->points);
    free(own->packed);
    free(own);
    free(x->arrived);
    free(x->ghosts);
    free(x->records);
    free(x->border_forces);
}

/* Displacements of blocks one after the other; answers their sum. */
static int add_up(const int *counts, int *displs, int n)
{
    int sum = 0;

    for (int r = 0; r < n; r++) {
        displs[r] = sum;
        sum += counts[r];
    }
    return sum;
}

/* Exchanges the counts; answers the rows that come, for which there must be room. */
static int exchange_counts(const struct domain *d, const int *send_counts, int *recv_counts,
                           int *recv_displs, int room)
{
    int num_rows;

    MPI_Alltoall(send_counts, 1, MPI_INT, recv_counts, 1, MPI_INT, MPI_COMM_WORLD);
    num_rows = add_up(recv_counts, recv_displs, d->num_ranks);
    if (num_rows > room)
        particles_fail("rank %d has room for %d rows, and %d come", d->rank, room, num_rows);
    return num_rows;
}

/* Packs the particles that leave by rank. */
static void pack_leaving(const struct domain *d, struct exchange_own *own, const struct patch *p)
{
    memset(own->send_counts, 0, (size_t)d->num_ranks * sizeof(int));
    for (int i = 0; i < p->num_leaving; i++)
        own->send_counts[p->leaving_ranks[i]]++;
    add_up(own->send_counts, own->send_displs, d->num_ranks);
    for (int i = 0; i < p->num_leaving; i++)
        own->packed[own->send_displs[p->leaving_ranks[i]]++] = p->leaving[i];
    add_up(own->send_counts, own->send_displs, d->num_ranks);
}

static void migrate(struct exchange *x, const struct patch *p)
{
    const struct domain *d = x->d;
    struct exchange_own *own = x->own;

    pack_leaving(d, own, p);
    x->num_arrived =
        exchange_counts(d, own->send_counts, own->recv_counts, own->recv_displs, d->room);
    MPI_Alltoallv(own->packed, own->send_counts, own->send_displs, own->particle, x->arrived,
                  own->recv_counts, own->recv_displs, own->particle, MPI_COMM_WORLD);
}

/* Whether a particle has a rank for the first time at column k of its ranks. */
static int is_new(const int32_t *ranks, int k)
{
    for (int i = 0; i < k; i++)
        if (ranks[i] == ranks[k])
            return 0;
    return ranks[k] >= 0;
}

/* Which rows of the border go to each rank, and their points in that order. */
static void pack_border(const struct domain *d, struct exchange_own *own, const struct patch *p)
{
    int64_t num_ids = (int64_t)p->num_border * BORDER_TILES;

    memset(own->border_send_counts, 0, (size_t)d->num_ranks * sizeof(int));
    for (int64_t i = 0; i < num_ids; i++)
        if (is_new(p->border_ranks + i - i % BORDER_TILES, (int)(i % BORDER_TILES)))
            own->border_send_counts[p->border_ranks[i]]++;
    add_up(own->border_send_counts, own->border_send_displs, d->num_ranks);
    for (int64_t i = 0; i < num_ids; i++)
        if (is_new(p->border_ranks + i - i % BORDER_TILES, (int)(i % BORDER_TILES))) {
            int row = own->border_send_displs[p->border_ranks[i]]++;

            own->border_rows[row] = (int)(i / BORDER_TILES);
            own->points[row] = p->border_points[i / BORDER_TILES];
        }
    add_up(own->border_send_counts, own->border_send_displs, d->num_ranks);
}

static void halo(struct exchange *x, const struct patch *p)
{
    struct exchange_own *own = x->own;

    pack_border(x->d, own, p);
    x->num_ghosts = exchange_counts(x->d, own->border_send_counts, own->border_recv_counts,
                                    own->border_recv_displs, x->d->ghost_room);
    MPI_Alltoallv(own->points, own->border_send_counts, own->border_send_displs, own->point,
                  x->ghosts, own->border_recv_counts, own->border_recv_displs, own->point,
                  MPI_COMM_WORLD);
}

/* The halo's counts and displacements are known, the other way round. */
static void scatter_add(struct exchange *x, const struct patch *p)
{
    struct exchange_own *own = x->own;
    int last = x->d->num_ranks - 1;
    int sent = own->border_send_displs[last] + own->border_send_counts[last];

    MPI_Alltoallv(p->ghost_forces, own->border_recv_counts, own->border_recv_displs, own->point,
                  own->points, own->border_send_counts, own->border_send_displs, own->point,
                  MPI_COMM_WORLD);
    memset(x->border_forces, 0, (size_t)p->num_border * sizeof(*x->border_forces));
    for (int i = 0; i < sent; i++) {
        x->border_forces[own->border_rows[i]].x += own->points[i].x;
        x->border_forces[own->border_rows[i]].y += own->points[i].y;
    }
}

static void collect(struct exchange *x, const struct patch *p)
{
    const struct domain *d = x->d;
    struct exchange_own *own = x->own;

    for (int r = 0; r < d->num_ranks; r++) {
        own->send_counts[r] = (int)p->packed_counts[r];
        own->send_displs[r] = (int)p->packed_displs[r];
    }
    x->num_records =
        exchange_counts(d, own->send_counts, own->recv_counts, own->recv_displs, d->num_ids);
    MPI_Alltoallv(p->packed, own->send_counts, own->send_displs, own->particle, x->records,
                  own->recv_counts, own->recv_displs, own->particle, MPI_COMM_WORLD);
}

const struct exchange_ops particles_mpi = {
    .create = create,
    .destroy = destroy,
    .phases = {migrate, halo, scatter_add, collect},
};
