/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_particles_check.c - the same particles on rank 0 alone, every one with every other, without
 * tiles, ghosts and exchanges. Sums of forces are exact in any order, so the bytes are the same.
 */
#include "epx_particles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGES = 8 };

static void start(const struct domain *d, struct particle *particles)
{
    for (int i = 0; i < d->opt.num_particles; i++)
        particles[i] = particles_start(d, i);
}

static void push_all(const struct domain *d, struct particle *particles, struct point *forces)
{
    int n = d->opt.num_particles;
    struct point force;

    memset(forces, 0, (size_t)n * sizeof(*forces));
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            if (particles_near(d, particles[i].at, particles[j].at, &force)) {
                forces[i].x += force.x;
                forces[i].y += force.y;
                forces[j].x -= force.x;
                forces[j].y -= force.y;
            }
    for (int i = 0; i < n; i++)
        particles_push(d, &particles[i], forces[i]);
}

static int64_t compare(const struct particle *particles, const struct particle *records, int n)
{
    int64_t wrong = 0;

    for (int i = 0; i < n; i++)
        if (memcmp(&particles[i], &records[i], sizeof(*records)) != 0 && wrong++ < MAX_MESSAGES)
            fprintf(stderr, "particle %lld is at %.17g %.17g, but the serial one at %.17g %.17g\n",
                    (long long)particles[i].id, records[i].at.x, records[i].at.y, particles[i].at.x,
                    particles[i].at.y);
    return wrong;
}

static void gather_records(const struct domain *d, const struct patch *p, struct particle *records)
{
    int *counts = particles_alloc(d->num_ranks, sizeof(int));
    int *displs = particles_alloc(d->num_ranks, sizeof(int));
    MPI_Datatype type;

    for (int r = 0; r < d->num_ranks; r++) {
        displs[r] = particles_first(d->opt.num_particles, r, d->num_ranks);
        counts[r] = particles_first(d->opt.num_particles, r + 1, d->num_ranks) - displs[r];
    }
    MPI_Type_contiguous(sizeof(struct particle), MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Gatherv(p->records, d->num_ids, type, records, counts, displs, type, 0, MPI_COMM_WORLD);
    MPI_Type_free(&type);
    free(counts);
    free(displs);
}

int64_t particles_check_step(const struct domain *d, const struct patch *p, struct particle **state)
{
    int n = d->rank == 0 ? d->opt.num_particles : 0;
    struct particle *records = particles_alloc(n, sizeof(*records));
    struct point *forces = particles_alloc(n, sizeof(*forces));
    int64_t wrong = 0;

    gather_records(d, p, records);
    if (d->rank == 0 && !*state) {
        *state = particles_alloc(n, sizeof(**state));
        start(d, *state);
    }
    if (d->rank == 0) {
        push_all(d, *state, forces);
        wrong = compare(*state, records, n);
    }
    free(records);
    free(forces);
    return wrong;
}

int64_t particles_check_own(const struct domain *d, const struct patch *p, int steps,
                            struct serial *serial)
{
    int n = d->opt.num_particles;
    struct point *forces = particles_alloc(n, sizeof(*forces));

    if (!serial->particles) {
        serial->particles = particles_alloc(n, sizeof(*serial->particles));
        start(d, serial->particles);
    }
    for (; serial->steps < steps; serial->steps++)
        push_all(d, serial->particles, forces);
    free(forces);
    return compare(serial->particles + d->first_id, p->records, d->num_ids);
}
