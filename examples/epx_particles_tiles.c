/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_particles_tiles.c - which rank owns which tile, and which tile a point lies in. */
#include "epx_particles.h"

#include <stdlib.h>
#include <string.h>

enum { TILE_PARTICLES = 16, MIN_SIDE = 4, MAX_SIDE = 512 };

int particles_first(int n, int rank, int num_ranks)
{
    return (int)((int64_t)rank * n / num_ranks);
}

int particles_owner(int n, int i, int num_ranks)
{
    return (int)((((int64_t)i + 1) * num_ranks - 1) / n);
}

int particles_tile(const struct domain *d, struct point at)
{
    return d->tiles[(int)(at.y * d->side) * d->side + (int)(at.x * d->side)];
}

/*
 * Numbers the tiles of a square of n by n along a Hilbert curve. Steps are differences of places:
 * the curve starts at `place`, ends n - 1 steps of `along` further, and lies to the side `aside`.
 * Its four quarters are such curves, each of which starts beside the end of the one before.
 */
static void number_tiles(struct domain *d, int place, int along, int aside, int n)
{
    int half = n / 2;

    if (n == 1) {
        d->places[d->num_tiles] = place;
        d->tiles[place] = d->num_tiles++;
        return;
    }
    number_tiles(d, place, aside, along, half);
    number_tiles(d, place + half * aside, along, aside, half);
    number_tiles(d, place + half * (along + aside), along, aside, half);
    number_tiles(d, place + (n - 1) * along + (half - 1) * aside, -aside, -along, half);
}

static int choose_side(int num_particles)
{
    int side = MIN_SIDE;

    while (side < MAX_SIDE && 4 * side * side <= num_particles / TILE_PARTICLES)
        side *= 2;
    return side;
}

int particles_tile_beside(const struct domain *d, int place, int columns, int rows)
{
    int column = (place % d->side + columns) & (d->side - 1);
    int row = (place / d->side + rows) & (d->side - 1);

    return d->tiles[row * d->side + column];
}

/* Whether a tile of a rank has one of another rank beside it, or the other way round. */
static int is_at_border(const struct domain *d, int tile, int rank)
{
    for (int k = 0; k < 9; k++) {
        int beside = particles_tile_beside(d, d->places[tile], k % 3 - 1, k / 3 - 1);

        if ((d->owners[tile] == rank) != (d->owners[beside] == rank))
            return 1;
    }
    return 0;
}

/* The repulsion keeps the density even: room for twice the even share of some tiles, and a few. */
static int room_of(const struct domain *d, int64_t tiles)
{
    int64_t most = d->opt.num_particles, share = tiles * (most / d->num_tiles + 1);
    int64_t room = 2 * share + 16 * TILE_PARTICLES;

    return (int)(room < most ? room : most);
}

/*
 * What leaves in a step, and what others need copies of, comes from tiles at the border. A route
 * does work for as many tokens as it may have, so this bound is kept tight: that of the rank which
 * has most.
 */
static void choose_room(struct domain *d)
{
    int inside = 0, most_inside = 0, outside = 0;

    for (int t = 0; t < d->num_tiles; t++) {
        if (t > 0 && d->owners[t] != d->owners[t - 1])
            inside = 0;
        inside += is_at_border(d, t, d->owners[t]);
        most_inside = inside > most_inside ? inside : most_inside;
        outside += d->owners[t] != d->rank && is_at_border(d, t, d->rank);
    }
    d->room = room_of(d, d->num_local_tiles);
    d->border_room = room_of(d, most_inside);
    d->ghost_room = room_of(d, outside);
}

void particles_domain_create(const struct options *opt, int rank, int num_ranks, struct domain *d)
{
    int side = choose_side(opt->num_particles), tiles = side * side;

    memset(d, 0, sizeof(*d));
    d->opt = *opt;
    d->comm = EPX_COMM_NULL;
    d->num_ranks = num_ranks;
    d->rank = rank;
    d->side = side;
    d->tiles = particles_alloc(tiles, sizeof(int));
    d->places = particles_alloc(tiles, sizeof(int));
    d->owners = particles_alloc(tiles, sizeof(int));
    number_tiles(d, 0, 1, side, side);
    for (int t = 0; t < tiles; t++)
        d->owners[t] = particles_owner(tiles, t, d->num_ranks);
    d->first_tile = particles_first(tiles, d->rank, d->num_ranks);
    d->num_local_tiles = particles_first(tiles, d->rank + 1, d->num_ranks) - d->first_tile;
    d->first_id = particles_first(opt->num_particles, d->rank, d->num_ranks);
    d->num_ids = particles_first(opt->num_particles, d->rank + 1, d->num_ranks) - d->first_id;
    choose_room(d);
}

void particles_domain_free(struct domain *d)
{
    free(d->tiles);
    free(d->places);
    free(d->owners);
}
