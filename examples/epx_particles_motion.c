/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_particles_motion.c - what a rank computes in a step: which particles are near other ranks'
 * tiles, the forces, the way of each particle, and where its record goes.
 */
#include "epx_particles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Velocities, and what a force of 1 adds to one, in sides of a tile. */
static const double heat = 0.02, kick = 0.01;

/*
 * Forces are rounded to multiples of 2^-24 and far less than 2^29 in sum, so that double holds
 * every sum of them exactly. So it does not matter in which order they are added, and the same
 * particles move the same way on any number of ranks and nodes.
 */
static const double quantum = 1.0 / (1 << 24);

/* The shortest of the differences that a periodic square has. */
static double difference(double a, double b)
{
    return a - b - rint(a - b);
}

static double round_force(double force)
{
    return rint(force / quantum) * quantum;
}

int particles_near(const struct domain *d, struct point a, struct point b, struct point *force)
{
    double reach = 0.5 / d->side, x = difference(a.x, b.x), y = difference(a.y, b.y);
    double square = x * x + y * y, distance, strength;

    if (!(square < reach * reach && square > 0))
        return 0;
    distance = sqrt(square);
    strength = (1 - distance / reach) / distance;
    *force = (struct point){round_force(strength * x), round_force(strength * y)};
    return 1;
}

/* The generator splitmix64 of Steele, Lea and Flood, as a number from 0 up to 1. */
static double random_number(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * UINT64_C(0xda942042e4dd58b5) + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) / (double)(UINT64_C(1) << 53);
}

/*
 * Anywhere, slowly in any direction, in a flow whose layers glide along each other while all of it
 * drifts across: so borders are crossed both ways, and the density stays even.
 */
struct particle particles_start(const struct domain *d, int64_t id)
{
    uint64_t i = 4 * (uint64_t)id, seed = d->opt.seed;
    struct particle particle = {.id = id};
    double turn = 2 * acos(-1), tile = 1.0 / d->side, flow = d->opt.flow * tile;

    particle.at = (struct point){random_number(seed, i), random_number(seed, i + 1)};
    particle.v.x = heat * tile * (2 * random_number(seed, i + 2) - 1);
    particle.v.y = heat * tile * (2 * random_number(seed, i + 3) - 1);
    particle.v.x += flow * sin(turn * particle.at.y);
    particle.v.y += flow / 2;
    return particle;
}

/* Back into the square; a tiny negative number would be rounded to 1. */
static double wrap(double x)
{
    x -= floor(x);
    return x < 1 ? x : 0;
}

void particles_push(const struct domain *d, struct particle *particle, struct point force)
{
    particle->v.x += kick / d->side * force.x;
    particle->v.y += kick / d->side * force.y;
    particle->path.x += particle->v.x;
    particle->path.y += particle->v.y;
    particle->at.x = wrap(particle->at.x + particle->v.x);
    particle->at.y = wrap(particle->at.y + particle->v.y);
}

static void start(const struct domain *d, struct patch *p)
{
    for (int id = 0; id < d->opt.num_particles; id++) {
        struct particle particle = particles_start(d, id);

        if (d->owners[particles_tile(d, particle.at)] != d->rank)
            continue;
        if (p->num_particles == d->room)
            particles_fail("rank %d has room for %d particles, and more start there", d->rank,
                           d->room);
        p->particles[p->num_particles++] = particle;
    }
}

void particles_patch_create(const struct domain *d, struct patch *p)
{
    int room = d->room, border = d->border_room;

    memset(p, 0, sizeof(*p));
    p->staying = particles_alloc(room, sizeof(*p->staying));
    p->leaving = particles_alloc(border, sizeof(*p->leaving));
    p->leaving_ranks = particles_alloc(border, sizeof(*p->leaving_ranks));
    p->particles = particles_alloc(room, sizeof(*p->particles));
    p->offsets = particles_alloc(d->num_local_tiles + 1, sizeof(*p->offsets));
    p->forces = particles_alloc(room, sizeof(*p->forces));
    p->border = particles_alloc(border, sizeof(*p->border));
    p->border_points = particles_alloc(border, sizeof(*p->border_points));
    p->border_ranks =
        particles_alloc(((int64_t)border + 1) * BORDER_TILES, sizeof(*p->border_ranks));
    p->ghost_forces = particles_alloc(d->ghost_room, sizeof(*p->ghost_forces));
    p->packed = particles_alloc(room, sizeof(*p->packed));
    p->packed_counts = particles_alloc(d->num_ranks, sizeof(*p->packed_counts));
    p->packed_displs = particles_alloc(d->num_ranks, sizeof(*p->packed_displs));
    p->records = particles_alloc(d->num_ids, sizeof(*p->records));
    start(d, p);
}

void particles_patch_free(struct patch *p)
{
    free(p->staying);
    free(p->leaving);
    free(p->leaving_ranks);
    free(p->particles);
    free(p->offsets);
    free(p->forces);
    free(p->border);
    free(p->border_points);
    free(p->border_ranks);
    free(p->ghost_forces);
    free(p->packed);
    free(p->packed_counts);
    free(p->packed_displs);
    free(p->records);
}

static void expect_room(const struct domain *d, int n, const char *what)
{
    if (n == d->border_room)
        particles_fail("more than %d particles %s rank %d", d->border_room, what, d->rank);
}

/* Particles in tiles of this rank stay, the others leave. */
void particles_part(const struct domain *d, struct patch *p)
{
    p->num_staying = p->num_leaving = 0;
    for (int i = 0; i < p->num_particles; i++) {
        int owner = d->owners[particles_tile(d, p->particles[i].at)];

        if (owner == d->rank) {
            p->staying[p->num_staying++] = p->particles[i];
        } else {
            expect_room(d, p->num_leaving, "leave");
            p->leaving_ranks[p->num_leaving] = owner;
            p->leaving[p->num_leaving++] = p->particles[i];
        }
    }
}

/* Adds the numbers of particles of each tile to those that stand behind it. */
static void count(const struct domain *d, const struct particle *particles, int n, int *offsets)
{
    for (int i = 0; i < n; i++)
        offsets[particles_tile(d, particles[i].at) - d->first_tile + 1]++;
}

/* Puts each behind those that its tile has already, which moves the tile's offset on. */
static void place(const struct domain *d, const struct particle *particles, int n, struct patch *p)
{
    for (int i = 0; i < n; i++)
        p->particles[p->offsets[particles_tile(d, particles[i].at) - d->first_tile]++] =
            particles[i];
}

/* Sorts particles that stayed and particles that arrived by tile. */
void particles_sort(const struct domain *d, struct patch *p)
{
    int tiles = d->num_local_tiles;

    p->num_particles = p->num_staying + p->num_arrived;
    if (p->num_particles > d->room)
        particles_fail("rank %d has %d particles and room for %d", d->rank, p->num_particles,
                       d->room);
    memset(p->offsets, 0, (size_t)(tiles + 1) * sizeof(*p->offsets));
    count(d, p->staying, p->num_staying, p->offsets);
    count(d, p->arrived, p->num_arrived, p->offsets);
    for (int t = 0; t < tiles; t++)
        p->offsets[t + 1] += p->offsets[t];
    place(d, p->staying, p->num_staying, p);
    place(d, p->arrived, p->num_arrived, p);
    memmove(p->offsets + 1, p->offsets, (size_t)tiles * sizeof(*p->offsets));
    p->offsets[0] = 0;
}

/* One of two ranks computes the forces between their particles; all ranks have about as many. */
static int computes_with(int rank, int other)
{
    return ((rank + other) % 2 == 0) == (rank < other);
}

/* The rank of a tile, if it needs a copy: it is not this one, and computes the forces. */
static int32_t rank_to_tell(const struct domain *d, int tile)
{
    int owner = d->owners[tile];

    return owner != d->rank && computes_with(owner, d->rank) ? owner : -1;
}

/* A particle reaches half a tile: to the left or the right, up or down, and across that corner. */
static int find_ranks(const struct domain *d, int place, struct point at, int32_t *ranks)
{
    double x = at.x * d->side, y = at.y * d->side;
    int columns = x - floor(x) < 0.5 ? -1 : 1, rows = y - floor(y) < 0.5 ? -1 : 1;

    ranks[0] = rank_to_tell(d, particles_tile_beside(d, place, columns, 0));
    ranks[1] = rank_to_tell(d, particles_tile_beside(d, place, 0, rows));
    ranks[2] = rank_to_tell(d, particles_tile_beside(d, place, columns, rows));
    return ranks[0] >= 0 || ranks[1] >= 0 || ranks[2] >= 0;
}

void particles_find_border(const struct domain *d, struct patch *p)
{
    int n = 0;

    for (int t = 0; t < d->num_local_tiles; t++)
        for (int i = p->offsets[t]; i < p->offsets[t + 1]; i++) {
            struct point at = p->particles[i].at;
            int32_t *ranks = p->border_ranks + (int64_t)BORDER_TILES * n;

            if (!find_ranks(d, d->places[d->first_tile + t], at, ranks))
                continue;
            expect_room(d, n, "are at the border of");
            p->border[n] = i;
            p->border_points[n++] = at;
        }
    p->num_border = n;
}

/* Adds the force between a particle of this rank and another point to both. */
static void repel(const struct domain *d, struct patch *p, int i, struct point at,
                  struct point *other)
{
    struct point force;

    if (!particles_near(d, p->particles[i].at, at, &force))
        return;
    p->forces[i].x += force.x;
    p->forces[i].y += force.y;
    other->x -= force.x;
    other->y -= force.y;
}

/* Every pair of two tiles of this rank; in one tile, every pair once. */
static void repel_tiles(const struct domain *d, struct patch *p, int a, int b)
{
    for (int i = p->offsets[a]; i < p->offsets[a + 1]; i++)
        for (int j = a == b ? i + 1 : p->offsets[b]; j < p->offsets[b + 1]; j++)
            repel(d, p, i, p->particles[j].at, &p->forces[j]);
}

/* The index of a tile among this rank's, or -1. */
static int local_tile(const struct domain *d, int tile)
{
    return d->owners[tile] == d->rank ? tile - d->first_tile : -1;
}

/* A tile with itself and half of its neighbours, so that every two tiles meet once. */
static void repel_neighbours(const struct domain *d, struct patch *p, int t)
{
    static const int beside[5][2] = {{0, 0}, {1, 0}, {-1, 1}, {0, 1}, {1, 1}};

    for (int k = 0; k < 5; k++) {
        int place = d->places[d->first_tile + t];
        int other = local_tile(d, particles_tile_beside(d, place, beside[k][0], beside[k][1]));

        if (other >= 0)
            repel_tiles(d, p, t, other);
    }
}

static void repel_ghost(const struct domain *d, struct patch *p, int ghost)
{
    struct point at = p->ghosts[ghost];
    int place = d->places[particles_tile(d, at)];

    for (int k = 0; k < 9; k++) {
        int t = local_tile(d, particles_tile_beside(d, place, k % 3 - 1, k / 3 - 1));

        for (int i = t < 0 ? 0 : p->offsets[t]; t >= 0 && i < p->offsets[t + 1]; i++)
            repel(d, p, i, at, &p->ghost_forces[ghost]);
    }
}

void particles_find_forces(const struct domain *d, struct patch *p)
{
    memset(p->forces, 0, (size_t)p->num_particles * sizeof(*p->forces));
    memset(p->ghost_forces, 0, (size_t)p->num_ghosts * sizeof(*p->ghost_forces));
    for (int t = 0; t < d->num_local_tiles; t++)
        repel_neighbours(d, p, t);
    for (int g = 0; g < p->num_ghosts; g++)
        repel_ghost(d, p, g);
}

void particles_add_forces(const struct point *border_forces, struct patch *p)
{
    for (int b = 0; b < p->num_border; b++) {
        p->forces[p->border[b]].x += border_forces[b].x;
        p->forces[p->border[b]].y += border_forces[b].y;
    }
}

void particles_move(const struct domain *d, struct patch *p)
{
    for (int i = 0; i < p->num_particles; i++)
        particles_push(d, &p->particles[i], p->forces[i]);
}

/* The rank that keeps the record of a particle. */
static int keeper(const struct domain *d, const struct particle *particle)
{
    return particles_owner(d->opt.num_particles, (int)particle->id, d->num_ranks);
}

void particles_pack_records(const struct domain *d, struct patch *p)
{
    int64_t first = 0;

    memset(p->packed_counts, 0, (size_t)d->num_ranks * sizeof(*p->packed_counts));
    for (int i = 0; i < p->num_particles; i++)
        p->packed_counts[keeper(d, &p->particles[i])]++;
    for (int r = 0; r < d->num_ranks; r++) {
        p->packed_displs[r] = first;
        first += p->packed_counts[r];
    }
    for (int i = 0; i < p->num_particles; i++)
        p->packed[p->packed_displs[keeper(d, &p->particles[i])]++] = p->particles[i];
    for (int r = 0; r < d->num_ranks; r++)
        p->packed_displs[r] -= p->packed_counts[r];
}

int64_t particles_sort_records(const struct domain *d, struct patch *p)
{
    int64_t wrong = 0;

    for (int i = 0; i < d->num_ids; i++)
        p->records[i].id = -1;
    for (int i = 0; i < d->num_ids; i++) {
        int64_t k = p->unsorted[i].id - d->first_id;

        if (k >= 0 && k < d->num_ids && p->records[k].id < 0)
            p->records[k] = p->unsorted[i];
        else
            wrong++;
    }
    return wrong;
}
