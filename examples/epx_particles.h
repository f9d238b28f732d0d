/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_particles.h - particles that repel each other in a periodic square, whose tiles are spread
 * over the ranks. epx_particles.c runs them. The exchanges between ranks are written twice:
 * epx_particles_epx.c by EPX, epx_particles_mpi.c by hand. epx_particles_tiles.c says which rank
 * owns what, epx_particles_motion.c is what a rank computes, epx_particles_check.c computes it
 * again without tiles and ranks, epx_particles_svg.c draws the square,
 * lost/epx_particles_lost.c goes on when a rank is lost.
 */
#ifndef EPX_PARTICLES_H
#define EPX_PARTICLES_H

#include <epx.h>

/* The side of the square is 1. Velocities and forces are those of a step. */
struct point {
    double x, y;
};

struct particle {
    struct point at;   /* 0 <= x, y < 1 */
    struct point v;    /* velocity */
    struct point path; /* sum of all steps */
    int64_t id;        /* 0 .. particles of all ranks - 1 */
};

struct options {
    int num_particles; /* of all ranks */
    int steps;
    double flow; /* speed of the flow that the particles start in, tiles a step */
    uint64_t seed;
    int check;       /* compare with a serial computation */
    const char *svg; /* file to draw into, or NULL */
    int lose_rank;   /* that is killed, or -1 */
};

/* Tiles are numbered along a Hilbert curve; rank r owns a block of them, as it owns experts. */
struct domain {
    struct options opt;
    EPX_Comm comm; /* of the exchanges by EPX; EPX_COMM_NULL: they make one of MPI_COMM_WORLD */
    int num_ranks, rank;
    int side, num_tiles; /* side * side = num_tiles; a power of 4, at least 16 */
    int first_tile, num_local_tiles;
    int *tiles;      /* [side][side] number of the tile in row y and column x */
    int *places;     /* [num_tiles] y * side + x of a tile */
    int *owners;     /* [num_tiles] rank of a tile */
    int room;        /* most particles of a rank */
    int border_room; /* most that leave a rank in a step, and that are in its border */
    int ghost_room;
    int first_id, num_ids; /* block of ids that the rank keeps the records of */
};

enum { BORDER_TILES = 3 }; /* tiles that a particle may reach into, beside its own */

/*
 * What a rank has, in the order of a step: particles that leave its tiles go to the ranks that own
 * the new ones; with those that stay they are sorted by tile; copies of those near other ranks'
 * tiles, the border, go there as ghosts; the forces on the ghosts come home; the particles move;
 * a copy of each goes to the rank that keeps its record.
 */
struct patch {
    int num_staying, num_leaving;
    struct particle *staying, *leaving;
    int32_t *leaving_ranks; /* [num_leaving] where to */

    int num_arrived;
    const struct particle *arrived; /* [num_arrived] */
    int num_particles;
    struct particle *particles; /* [num_particles] by tile */
    int *offsets;               /* [num_local_tiles + 1] first particle of each tile */
    struct point *forces;       /* [num_particles] */

    int num_border;
    int *border;                 /* [num_border] indices of particles */
    struct point *border_points; /* [num_border] */
    int32_t *border_ranks;       /* [num_border][BORDER_TILES] who needs a copy; -1 = none */

    int num_ghosts;
    const struct point *ghosts; /* [num_ghosts] */
    struct point *ghost_forces; /* [num_ghosts] */

    struct particle *packed;         /* [num_particles] by the rank that keeps the record */
    int64_t *packed_counts;          /* [num_ranks] */
    int64_t *packed_displs;          /* [num_ranks] */
    const struct particle *unsorted; /* [num_ids] records as they arrived */
    struct particle *records;        /* [num_ids] by id */
};

enum phase { MIGRATE, HALO, SCATTER_ADD, COLLECT, NUM_PHASES };

/* What the exchanges of a step answer, each in memory that lasts until its next call. */
struct exchange {
    const struct domain *d;
    int num_arrived;
    struct particle *arrived; /* [num_arrived] by source rank, index there */
    int num_ghosts;
    struct point *ghosts;        /* [num_ghosts] by source rank, index in its border */
    struct point *border_forces; /* [num_border] sum of the forces on the ghosts of each */
    int64_t num_records;
    struct particle *records; /* [num_records] by source rank, index there */
    struct exchange_own *own;
};

struct exchange_ops {
    void (*create)(const struct domain *d, struct exchange *x);
    void (*destroy)(struct exchange *x);
    void (*phases[NUM_PHASES])(struct exchange *x, const struct patch *p);
};

extern const struct exchange_ops particles_epx, particles_mpi;

/* The transport that EPX has chosen, for the report. */
void particles_epx_transport(const struct exchange *x, char name[MPI_MAX_INFO_VAL + 1]);

/* Says what is wrong and ends the program. */
void particles_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Memory, zeroed; ends the program if there is none. */
void *particles_alloc(int64_t count, size_t size);

/* Tiles and blocks. Of n things rank r has those from particles_first(n, r) to that of r + 1. */
void particles_domain_create(const struct options *opt, int rank, int num_ranks, struct domain *d);
void particles_domain_free(struct domain *d);
int particles_first(int n, int rank, int num_ranks);
int particles_owner(int n, int i, int num_ranks);
int particles_tile(const struct domain *d, struct point at);

/* The number of the tile some columns and rows from a place, around the square. */
int particles_tile_beside(const struct domain *d, int place, int columns, int rows);

/* Two particles are near if they repel each other: closer than half the side of a tile. */
int particles_near(const struct domain *d, struct point a, struct point b, struct point *force);

/* A particle as it starts, and the step that a force makes it take. */
struct particle particles_start(const struct domain *d, int64_t id);
void particles_push(const struct domain *d, struct particle *particle, struct point force);

/* What a rank computes in a step. */
void particles_patch_create(const struct domain *d, struct patch *p);
void particles_patch_free(struct patch *p);
void particles_part(const struct domain *d, struct patch *p);
void particles_sort(const struct domain *d, struct patch *p);
void particles_find_border(const struct domain *d, struct patch *p);
void particles_find_forces(const struct domain *d, struct patch *p);
void particles_add_forces(const struct point *border_forces, struct patch *p);
void particles_move(const struct domain *d, struct patch *p);
void particles_pack_records(const struct domain *d, struct patch *p);

/* Puts the records in the order of their ids; answers how many are missing or double. */
int64_t particles_sort_records(const struct domain *d, struct patch *p);

/* Collective: compares the records of a step with those of a serial computation, which rank 0
 * does; answers the particles that differ. The state is NULL at first, and freed by the user. */
int64_t particles_check_step(const struct domain *d, const struct patch *p,
                             struct particle **state);

/* All particles after so many steps, which one rank computes alone. */
struct serial {
    struct particle *particles; /* [of all ranks], NULL at first, and freed by the user */
    int steps;
};

/* Local: compares the records of the last of so many steps with the serial computation, which goes
 * on to that step; answers the particles that differ. */
int64_t particles_check_own(const struct domain *d, const struct patch *p, int steps,
                            struct serial *serial);

/* Runs the steps by EPX alone, while a rank is killed. Answers the exit status; the caller must not
 * finalize MPI, which would wait for that rank. */
int particles_run_lost(const struct options *opt);

/* Collective: draws tiles, particles and ghosts into a file that rank 0 has opened. */
void particles_draw(const struct domain *d, const struct patch *p, void *file);

#endif
