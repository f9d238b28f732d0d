/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_particles_lost.c - a rank is killed after half of the steps, and the others go on: its tiles
 * go to those beside it along the curve, its particles come from the next rank, which has kept a
 * copy of them as they were after each step. A rank that was a step ahead goes back by one.
 */
#define _POSIX_C_SOURCE 200809L
#include "epx_particles.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS = 3 };

/* The particles after a step: those of this rank, and those of the rank before it. */
struct kept {
    int steps;
    int64_t num_own, num_before;
    struct particle *own, *before; /* [particles of all ranks] */
};

struct job {
    struct domain d;
    struct patch patch;
    struct exchange exchange;
    struct kept kept[2]; /* the last two, by the number of the step */
    int steps;           /* that are complete */
    struct serial serial;
    int64_t errors;
};

/* Sends blocks of rows, one behind the other, so many to each rank. Answers the rows that come, or
 * -1 if the communicator has ended. */
static int64_t exchange_rows(EPX_Comm comm, const void *sent, const int64_t *counts, void *received,
                             int64_t room, int row_bytes)
{
    EPX_Request request = EPX_REQUEST_NULL;
    int64_t *displs, *arrive_counts, *arrive_displs, rows;
    int size = 0, rc;

    EPX_Comm_size(comm, &size);
    displs = particles_alloc(3 * size, sizeof(*displs));
    arrive_counts = displs + size;
    arrive_displs = arrive_counts + size;
    for (int r = 1; r < size; r++)
        displs[r] = displs[r - 1] + counts[r - 1];
    rc = EPX_Alltoallv(sent, counts, displs, received, arrive_counts, arrive_displs, room,
                       row_bytes, EPX_BYTE, comm, EPX_STREAM_NULL, &request);
    if (rc == EPX_SUCCESS)
        rc = EPX_Wait(&request, MPI_STATUS_IGNORE);
    rows = arrive_displs[size - 1] + arrive_counts[size - 1];
    free(displs);
    return rc == EPX_SUCCESS ? rows : -1;
}

/* Every rank learns the numbers of all. Answers 0 if the communicator has ended. */
static int gather(const struct domain *d, int64_t own, int64_t *all)
{
    int64_t *sent = particles_alloc(2 * d->num_ranks, sizeof(*sent)), rows;

    for (int r = 0; r < d->num_ranks; r++) {
        sent[r] = own;
        sent[d->num_ranks + r] = 1;
    }
    rows = exchange_rows(d->comm, sent, sent + d->num_ranks, all, d->num_ranks, sizeof(own));
    free(sent);
    return rows == d->num_ranks;
}

/* Keeps a copy of the particles, and gives one to the next rank. Answers 0 if the communicator has
 * ended. */
static int keep(struct job *j)
{
    const struct domain *d = &j->d;
    struct kept *kept = &j->kept[j->steps % 2];
    int64_t *counts = particles_alloc(d->num_ranks, sizeof(*counts)), rows;

    counts[(d->rank + 1) % d->num_ranks] = j->patch.num_particles;
    rows = exchange_rows(d->comm, j->patch.particles, counts, kept->before, d->opt.num_particles,
                         sizeof(struct particle));
    free(counts);
    if (rows < 0)
        return 0;
    kept->steps = j->steps;
    kept->num_before = rows;
    kept->num_own = j->patch.num_particles;
    memcpy(kept->own, j->patch.particles, (size_t)kept->num_own * sizeof(*kept->own));
    return 1;
}

/* Answers 0 if the communicator has ended. */
static int exchange(struct job *j, enum phase phase)
{
    int code = EPX_SUCCESS;

    particles_epx.phases[phase](&j->exchange, &j->patch);
    EPX_Comm_get_async_error(j->d.comm, &code);
    if (code != EPX_SUCCESS && code != EPX_ERR_TIMEOUT)
        particles_fail("rank %d: error %d in step %d", j->d.rank, code, j->steps);
    return code == EPX_SUCCESS;
}

static int migrate(struct job *j)
{
    struct patch *p = &j->patch;

    particles_part(&j->d, p);
    if (!exchange(j, MIGRATE))
        return 0;
    p->num_arrived = j->exchange.num_arrived;
    p->arrived = j->exchange.arrived;
    particles_sort(&j->d, p);
    return 1;
}

static int find_forces(struct job *j)
{
    struct patch *p = &j->patch;

    particles_find_border(&j->d, p);
    if (!exchange(j, HALO))
        return 0;
    p->num_ghosts = j->exchange.num_ghosts;
    p->ghosts = j->exchange.ghosts;
    particles_find_forces(&j->d, p);
    if (!exchange(j, SCATTER_ADD))
        return 0;
    particles_add_forces(j->exchange.border_forces, p);
    return 1;
}

static int keep_records(struct job *j)
{
    struct patch *p = &j->patch;

    particles_pack_records(&j->d, p);
    if (!exchange(j, COLLECT))
        return 0;
    p->unsorted = j->exchange.records;
    j->errors += particles_sort_records(&j->d, p);
    if (j->d.opt.check)
        j->errors += particles_check_own(&j->d, p, j->steps + 1, &j->serial);
    return 1;
}

/* Answers 0 if the communicator has ended. */
static int step(struct job *j)
{
    if (!migrate(j))
        return 0;
    if (j->steps == j->d.opt.steps / 2 && j->d.rank == j->d.opt.lose_rank)
        raise(SIGKILL);
    if (!find_forces(j))
        return 0;
    particles_move(&j->d, &j->patch);
    if (!keep_records(j))
        return 0;
    j->steps++;
    return keep(j);
}

/* The least of the last steps that the ranks have kept, which all of them have. */
static int last_common_step(const struct job *j, const struct domain *d)
{
    int own = j->kept[0].steps > j->kept[1].steps ? j->kept[0].steps : j->kept[1].steps;
    int64_t *all = particles_alloc(d->num_ranks, sizeof(*all)), least = own;

    if (!gather(d, own, all))
        particles_fail("another rank was lost");
    for (int r = 0; r < d->num_ranks; r++)
        least = all[r] < least ? all[r] : least;
    free(all);
    return (int)least;
}

/* Whether the rank before this one is not among those that go on. */
static int is_next_to_lost(const struct domain *old, const struct domain *d)
{
    int *ranks = particles_alloc(d->num_ranks, sizeof(int));
    int before = (old->rank + old->num_ranks - 1) % old->num_ranks, found = 0;

    EPX_Comm_get_ranks(d->comm, ranks);
    for (int r = 0; r < d->num_ranks; r++)
        found |= ranks[r] == before;
    free(ranks);
    return !found;
}

/* Packs the particles by the ranks that own their tiles, from the places of the ranks on, or only
 * counts them. */
static void pack(const struct domain *d, const struct particle *particles, int64_t n,
                 int64_t *places, struct particle *packed)
{
    for (int64_t i = 0; i < n; i++) {
        int owner = d->owners[particles_tile(d, particles[i].at)];

        if (packed)
            packed[places[owner]] = particles[i];
        places[owner]++;
    }
}

/* Sends particles to the ranks that own their tiles now, far away too. */
static void deal(const struct domain *d, const struct kept *kept, int64_t num_before,
                 struct patch *p)
{
    int64_t *counts = particles_alloc(2 * d->num_ranks, sizeof(*counts));
    int64_t *places = counts + d->num_ranks, n;
    struct particle *packed = particles_alloc(kept->num_own + num_before, sizeof(*packed));

    pack(d, kept->own, kept->num_own, counts, NULL);
    pack(d, kept->before, num_before, counts, NULL);
    for (int r = 1; r < d->num_ranks; r++)
        places[r] = places[r - 1] + counts[r - 1];
    pack(d, kept->own, kept->num_own, places, packed);
    pack(d, kept->before, num_before, places, packed);
    n = exchange_rows(d->comm, packed, counts, p->particles, d->room, sizeof(*packed));
    if (n < 0)
        particles_fail("rank %d cannot get its particles", d->rank);
    p->num_particles = (int)n;
    free(packed);
    free(counts);
}

static EPX_Comm shrink(const struct domain *d)
{
    EPX_Comm comm = EPX_COMM_NULL;

    for (int i = 0; i < ATTEMPTS && comm == EPX_COMM_NULL; i++)
        EPX_Comm_shrink(d->comm, &comm);
    if (comm == EPX_COMM_NULL)
        particles_fail("rank %d cannot go on with others", d->rank);
    return comm;
}

/* Frees what belongs to the communicator, and that, too. */
static void leave(struct job *j)
{
    particles_epx.destroy(&j->exchange);
    particles_patch_free(&j->patch);
    particles_domain_free(&j->d);
    EPX_Comm_free(&j->d.comm);
}

static void enter(struct job *j, const struct domain *d)
{
    j->d = *d;
    particles_patch_create(&j->d, &j->patch);
    particles_epx.create(&j->d, &j->exchange);
}

/* Goes on with the ranks that live. */
static void go_on(struct job *j)
{
    EPX_Comm comm = shrink(&j->d);
    int rank, size, is_next;
    struct domain d;

    EPX_Comm_rank(comm, &rank);
    EPX_Comm_size(comm, &size);
    if (size == j->d.num_ranks)
        particles_fail("an exchange failed, and no rank is lost");
    particles_domain_create(&j->d.opt, rank, size, &d);
    d.comm = comm;
    d.opt.lose_rank = -1;
    is_next = is_next_to_lost(&j->d, &d);
    leave(j);
    enter(j, &d);
    j->steps = last_common_step(j, &j->d);
    deal(&j->d, &j->kept[j->steps % 2], is_next ? j->kept[j->steps % 2].num_before : 0, &j->patch);
    if (rank == 0)
        printf("after step %d %d ranks go on with the tiles of all\n", j->steps, size);
}

static EPX_Comm create_comm(void)
{
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Info info;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Info_create(&info);
    MPI_Info_set(info, "epx_memory", "system");
    MPI_Info_set(info, "epx_control", "sockets"); /* by which a death is known at once */
    if (EPX_Comm_create(MPI_COMM_WORLD, info, &comm) != EPX_SUCCESS)
        particles_fail("no communicator");
    MPI_Info_free(&info);
    return comm;
}

static void report(struct job *j, int num_started)
{
    int64_t *all = particles_alloc(j->d.num_ranks, sizeof(*all)), errors = 0;

    if (!gather(&j->d, j->errors, all))
        particles_fail("another rank was lost");
    for (int r = 0; r < j->d.num_ranks; r++)
        errors += all[r];
    errors += j->d.num_ranks != num_started - 1;
    free(all);
    j->errors = errors;
    if (j->d.rank != 0)
        return;
    if (!errors && j->d.opt.check)
        printf("a serial computation without a loss gave the same bytes in every step\n");
    printf(errors ? " Found %lld errors\n" : " No Errors\n", (long long)errors);
}

static void run_steps(struct job *j)
{
    int started = keep(j);

    while (j->steps < j->d.opt.steps)
        if (!started || !step(j)) {
            go_on(j);
            started = keep(j);
        }
}

int particles_run_lost(const struct options *opt)
{
    struct job j = {.errors = 0};
    struct domain d;
    int rank, size;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (opt->lose_rank >= size || size < 2 || opt->steps < 2 || opt->svg) {
        if (rank == 0)
            fprintf(stderr,
                    "epx_particles: --lose-rank is for ranks 0 to %d of two or more, two steps or "
                    "more, and no picture\n",
                    size - 1);
        MPI_Finalize();
        return 2;
    }
    for (int i = 0; i < 2; i++) {
        j.kept[i].own = particles_alloc(opt->num_particles, sizeof(struct particle));
        j.kept[i].before = particles_alloc(opt->num_particles, sizeof(struct particle));
    }
    particles_domain_create(opt, rank, size, &d);
    d.comm = create_comm();
    enter(&j, &d);
    run_steps(&j);
    report(&j, size);
    leave(&j);
    for (int i = 0; i < 2; i++) {
        free(j.kept[i].own);
        free(j.kept[i].before);
    }
    free(j.serial.particles);
    fflush(NULL);
    return j.errors != 0;
}
