/* SPDX-License-Identifier: BSD-3-Clause */
/* test_star_uses.c - stars of type epx on communicators that come and go, some of one rank, and
   under the scatters of grids. */
#include <petscdmda.h>
#include <petscsf.h>
#include <stdio.h>

enum { ROUNDS = 6 };

static int num_faults;

static void expect(int right, const char *what)
{
    PetscMPIInt rank;

    MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
    if (!right && num_faults++ < 20)
        fprintf(stderr, "rank %d: %s\n", rank, what);
}

/* A leaf on each rank for the next one's root, and one for its own. */
static PetscErrorCode make_ring(MPI_Comm comm, PetscSF *star)
{
    PetscMPIInt rank, size;
    PetscSFNode nodes[2];

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Comm_rank(comm, &rank));
    PetscCallMPI(MPI_Comm_size(comm, &size));
    nodes[0] = (PetscSFNode){(rank + 1) % size, 0};
    nodes[1] = (PetscSFNode){rank, 0};
    PetscCall(PetscSFCreate(comm, star));
    PetscCall(PetscSFSetType(*star, "epx"));
    PetscCall(PetscSFSetGraph(*star, 1, 2, NULL, PETSC_COPY_VALUES, nodes, PETSC_COPY_VALUES));
    PetscFunctionReturn(0);
}

static PetscErrorCode turn_ring(MPI_Comm comm, PetscSF star, PetscInt salt)
{
    PetscInt root, leaves[2] = {-1, -1};
    PetscMPIInt rank, size;

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Comm_rank(comm, &rank));
    PetscCallMPI(MPI_Comm_size(comm, &size));
    root = rank + salt;
    PetscCall(PetscSFBcastBegin(star, MPIU_INT, &root, leaves, MPI_REPLACE));
    PetscCall(PetscSFBcastEnd(star, MPIU_INT, &root, leaves, MPI_REPLACE));
    expect(leaves[0] == (rank + 1) % size + salt && leaves[1] == root, "a leaf has another value");
    PetscCall(PetscSFReduceBegin(star, MPIU_INT, leaves, &root, MPI_SUM));
    PetscCall(PetscSFReduceEnd(star, MPIU_INT, leaves, &root, MPI_SUM));
    expect(root == 3 * (rank + salt), "a root has another value");
    PetscFunctionReturn(0);
}

static PetscErrorCode ring_works(MPI_Comm comm, PetscInt salt)
{
    PetscSF star;

    PetscFunctionBeginUser;
    PetscCall(make_ring(comm, &star));
    PetscCall(turn_ring(comm, star, salt));
    PetscCall(PetscSFDestroy(&star));
    PetscFunctionReturn(0);
}

/* Halves of the ranks, which overlap in nothing, beside all ranks and each rank alone. */
static PetscErrorCode communicators_come_and_go(void)
{
    PetscMPIInt rank, size;
    MPI_Comm half;
    PetscSF all;

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
    PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &size));
    PetscCall(make_ring(PETSC_COMM_WORLD, &all));
    for (PetscInt round = 0; round < ROUNDS; round++) {
        PetscCallMPI(MPI_Comm_split(PETSC_COMM_WORLD, 2 * rank < size, -rank, &half));
        PetscCall(ring_works(half, round));
        PetscCall(turn_ring(PETSC_COMM_WORLD, all, 10 * round));
        PetscCall(ring_works(half, round + 100));
        PetscCall(ring_works(PETSC_COMM_SELF, round));
        PetscCallMPI(MPI_Comm_free(&half));
    }
    PetscCall(PetscSFDestroy(&all));
    PetscCall(ring_works(PETSC_COMM_WORLD, 7)); /* alone on its communicator, which goes with it */
    PetscFunctionReturn(0);
}

static PetscErrorCode a_copy_is_of_type_epx(void)
{
    PetscSF star, copy;
    PetscBool is_epx;

    PetscFunctionBeginUser;
    PetscCall(make_ring(PETSC_COMM_WORLD, &star));
    PetscCall(PetscSFDuplicate(star, PETSCSF_DUPLICATE_GRAPH, &copy));
    PetscCall(PetscObjectTypeCompare((PetscObject)copy, "epx", &is_epx));
    expect(is_epx, "a copy is of another type");
    PetscCall(turn_ring(PETSC_COMM_WORLD, copy, 5));
    PetscCall(turn_ring(PETSC_COMM_WORLD, star, 6));
    PetscCall(PetscSFDestroy(&star));
    PetscCall(PetscSFDestroy(&copy));
    PetscFunctionReturn(0);
}

/* Also when it is set up already, as a late DMSetFromOptions() does it. */
static PetscErrorCode a_star_may_change_its_type(void)
{
    static const char *const types[] = {"basic", "epx", "basic", "epx"};
    PetscSF star;

    PetscFunctionBeginUser;
    PetscCall(make_ring(PETSC_COMM_WORLD, &star));
    for (PetscInt i = 0; i < (PetscInt)(sizeof(types) / sizeof(types[0])); i++) {
        PetscCall(turn_ring(PETSC_COMM_WORLD, star, i));
        PetscCall(PetscSFSetType(star, types[i]));
    }
    PetscCall(turn_ring(PETSC_COMM_WORLD, star, 11));
    PetscCall(PetscSFDestroy(&star));
    PetscFunctionReturn(0);
}

static PetscErrorCode a_star_in_use_keeps_its_type(void)
{
    PetscInt root = 3, leaves[2] = {-1, -1};
    PetscErrorCode code;
    PetscSF star;

    PetscFunctionBeginUser;
    PetscCall(make_ring(PETSC_COMM_WORLD, &star));
    PetscCall(PetscSFBcastBegin(star, MPIU_INT, &root, leaves, MPI_REPLACE));
    PetscCall(PetscPushErrorHandler(PetscIgnoreErrorHandler, NULL));
    code = PetscSFSetType(star, "basic");
    PetscCall(PetscPopErrorHandler());
    expect(code == PETSC_ERR_ARG_WRONGSTATE, "a star in use got another type");
    PetscCall(PetscSFBcastEnd(star, MPIU_INT, &root, leaves, MPI_REPLACE));
    expect(leaves[0] == 3 && leaves[1] == 3, "a leaf of the star in use has another value");
    PetscCall(turn_ring(PETSC_COMM_WORLD, star, 12));
    PetscCall(PetscSFDestroy(&star));
    PetscFunctionReturn(0);
}

/* Fills the ghost points of one local vector into another, which remaps a copy of a scatter. */
static PetscErrorCode update_ghosts(const char *type, PetscReal *norm)
{
    Vec global, from, to;
    DM grid;

    PetscFunctionBeginUser;
    PetscCall(PetscOptionsSetValue(NULL, "-sf_type", type));
    PetscCall(DMDACreate2d(PETSC_COMM_WORLD, DM_BOUNDARY_PERIODIC, DM_BOUNDARY_NONE,
                           DMDA_STENCIL_BOX, 24, 17, PETSC_DECIDE, PETSC_DECIDE, 2, 1, NULL, NULL,
                           &grid));
    PetscCall(DMSetUp(grid));
    PetscCall(DMCreateGlobalVector(grid, &global));
    PetscCall(DMCreateLocalVector(grid, &from));
    PetscCall(VecDuplicate(from, &to));
    PetscCall(VecSetRandom(global, NULL));
    PetscCall(DMGlobalToLocal(grid, global, INSERT_VALUES, from));
    PetscCall(VecCopy(from, to));
    PetscCall(DMLocalToLocalBegin(grid, from, INSERT_VALUES, to));
    PetscCall(DMLocalToLocalEnd(grid, from, INSERT_VALUES, to));
    PetscCall(VecNorm(to, NORM_2, norm));
    PetscCall(VecDestroy(&global));
    PetscCall(VecDestroy(&from));
    PetscCall(VecDestroy(&to));
    PetscCall(DMDestroy(&grid));
    PetscFunctionReturn(0);
}

static PetscErrorCode copies_of_scatters_can_be_remapped(void)
{
    PetscReal norms[2];

    PetscFunctionBeginUser;
    PetscCall(update_ghosts("basic", &norms[0]));
    PetscCall(update_ghosts("epx", &norms[1]));
    expect(norms[0] == norms[1], "ghost points differ");
    PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
    PetscMPIInt rank;

    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(communicators_come_and_go());
    PetscCall(a_copy_is_of_type_epx());
    PetscCall(a_star_may_change_its_type());
    PetscCall(a_star_in_use_keeps_its_type());
    PetscCall(copies_of_scatters_can_be_remapped());
    PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
    PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &num_faults, 1, MPI_INT, MPI_SUM, PETSC_COMM_WORLD));
    PetscCall(PetscFinalize());
    if (rank == 0)
        printf(num_faults ? " Found %d errors\n" : " No Errors\n", num_faults);
    return num_faults > 0;
}
