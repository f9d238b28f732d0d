/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * time_star.c - how long the types of stars take for the same broadcasts and reductions, in one
 * run: a box of ranks with periodic faces, where each face is so many reals. Types take turns in
 * every repetition.
 *
 *   mpiexec -n 8 tests/petsc/time_star -dll_append .libs/libepx_petsc.so
 *       [-types basic,neighbor,epx] [-units 1,16,128,1024,8192,65536] [-repetitions 40] [-strided]
 */
#include <petscsf.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TYPES = 8, MAX_LENGTHS = 16, NUM_FACES = 6, MAX_REPETITIONS = 1000 };

struct options {
    char *types[MAX_TYPES];
    PetscInt num_types, lengths[MAX_LENGTHS], num_lengths, repetitions;
    PetscBool strided;
};

static PetscErrorCode read_options(struct options *options)
{
    const PetscInt lengths[] = {1, 16, 128, 1024, 8192, 65536};
    const char *const types[] = {"basic", "neighbor", "epx"};
    PetscBool given;

    PetscFunctionBeginUser;
    options->num_types = MAX_TYPES;
    PetscCall(PetscOptionsGetStringArray(NULL, NULL, "-types", options->types, &options->num_types,
                                         &given));
    if (!given)
        for (options->num_types = 0; options->num_types < 3; options->num_types++)
            PetscCall(
                PetscStrallocpy(types[options->num_types], &options->types[options->num_types]));
    options->num_lengths = MAX_LENGTHS;
    PetscCall(PetscOptionsGetIntArray(NULL, NULL, "-units", options->lengths, &options->num_lengths,
                                      &given));
    if (!given) {
        options->num_lengths = sizeof(lengths) / sizeof(lengths[0]);
        memcpy(options->lengths, lengths, sizeof(lengths));
    }
    options->repetitions = 40;
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-repetitions", &options->repetitions, NULL));
    options->repetitions = PetscMin(options->repetitions, MAX_REPETITIONS);
    PetscCall(PetscOptionsGetBool(NULL, NULL, "-strided", &options->strided, NULL));
    PetscFunctionReturn(0);
}

/* The ranks beyond the six faces of this rank, in a box that is as near to a cube as there is. */
static PetscErrorCode find_neighbors(PetscMPIInt neighbors[NUM_FACES])
{
    int extents[3] = {0, 0, 0}, periods[3] = {1, 1, 1};
    PetscMPIInt size;
    MPI_Comm box;

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &size));
    PetscCallMPI(MPI_Dims_create(size, 3, extents));
    PetscCallMPI(MPI_Cart_create(PETSC_COMM_WORLD, 3, extents, periods, 0, &box));
    for (int axis = 0; axis < 3; axis++)
        PetscCallMPI(MPI_Cart_shift(box, axis, 1, &neighbors[2 * axis], &neighbors[2 * axis + 1]));
    PetscCallMPI(MPI_Comm_free(&box));
    PetscFunctionReturn(0);
}

/* Face f of a rank is the leaves of face f of the root ranks. Strided: every second root. */
static PetscErrorCode make_star(const char *type, PetscInt length, PetscInt stride, PetscSF *star)
{
    const PetscInt num = NUM_FACES * length;
    PetscMPIInt neighbors[NUM_FACES];
    PetscSFNode *nodes;

    PetscFunctionBeginUser;
    PetscCall(find_neighbors(neighbors));
    PetscCall(PetscMalloc1(num, &nodes));
    for (PetscInt i = 0; i < num; i++)
        nodes[i] = (PetscSFNode){neighbors[i / length], i * stride};
    PetscCall(PetscSFCreate(PETSC_COMM_WORLD, star));
    PetscCall(PetscSFSetType(*star, type));
    PetscCall(PetscSFSetGraph(*star, num * stride, num, NULL, PETSC_COPY_VALUES, nodes,
                              PETSC_OWN_POINTER));
    PetscCall(PetscSFSetUp(*star));
    PetscFunctionReturn(0);
}

struct operation {
    PetscSF star;
    PetscReal *roots, *leaves;
    PetscBool reduces;
};

static PetscErrorCode run(const struct operation *operation)
{
    PetscFunctionBeginUser;
    if (operation->reduces) {
        PetscCall(PetscSFReduceBegin(operation->star, MPIU_REAL, operation->leaves,
                                     operation->roots, MPI_SUM));
        PetscCall(PetscSFReduceEnd(operation->star, MPIU_REAL, operation->leaves, operation->roots,
                                   MPI_SUM));
    } else {
        PetscCall(PetscSFBcastBegin(operation->star, MPIU_REAL, operation->roots, operation->leaves,
                                    MPI_REPLACE));
        PetscCall(PetscSFBcastEnd(operation->star, MPIU_REAL, operation->roots, operation->leaves,
                                  MPI_REPLACE));
    }
    PetscFunctionReturn(0);
}

/* The time of one of several operations in a row, on the slowest rank. */
static PetscErrorCode measure(const struct operation *operation, PetscInt num, double *seconds)
{
    double begin;

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
    begin = MPI_Wtime();
    for (PetscInt i = 0; i < num; i++)
        PetscCall(run(operation));
    *seconds = (MPI_Wtime() - begin) / (double)num;
    PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, seconds, 1, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD));
    PetscFunctionReturn(0);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double values[], PetscInt num)
{
    qsort(values, (size_t)num, sizeof(double), compare);
    return values[num / 2];
}

static PetscErrorCode print_line(const char *what, PetscInt length, PetscInt num,
                                 const double seconds[])
{
    PetscFunctionBeginUser;
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%-9s %8d", what, (int)(length * sizeof(PetscReal))));
    for (PetscInt i = 0; i < num; i++)
        PetscCall(PetscPrintf(PETSC_COMM_WORLD, " %10.1f", seconds[i] * 1e6));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "\n"));
    PetscFunctionReturn(0);
}

/* Prints the median for each type. */
static PetscErrorCode time_line(const struct options *options, struct operation operations[],
                                PetscInt length, PetscBool reduces)
{
    static double seconds[MAX_TYPES][MAX_REPETITIONS];
    double medians[MAX_TYPES];
    const PetscInt in_a_row = PetscMax(4, 4000 / PetscMax(length, 40));

    PetscFunctionBeginUser;
    for (PetscInt i = -1; i < options->repetitions; i++)
        for (PetscInt type = 0; type < options->num_types; type++) {
            operations[type].reduces = reduces;
            PetscCall(measure(&operations[type], in_a_row, &seconds[type][PetscMax(i, 0)]));
        }
    for (PetscInt type = 0; type < options->num_types; type++)
        medians[type] = median(seconds[type], options->repetitions);
    PetscCall(print_line(reduces ? "reduce" : "broadcast", length, options->num_types, medians));
    PetscFunctionReturn(0);
}

/* The time of making a star, its first broadcast included, on the slowest rank: the second one of
 * two such stars, where the first has made what they share. */
static PetscErrorCode time_making(const char *type, PetscInt length, PetscInt stride,
                                  struct operation *operation, double *seconds)
{
    PetscSF first;
    double begin;

    PetscFunctionBeginUser;
    PetscCall(make_star(type, length, stride, &first));
    PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
    begin = MPI_Wtime();
    PetscCall(make_star(type, length, stride, &operation->star));
    PetscCall(run(operation));
    *seconds = MPI_Wtime() - begin;
    PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, seconds, 1, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD));
    PetscCall(PetscSFDestroy(&first));
    PetscFunctionReturn(0);
}

static PetscErrorCode time_length(const struct options *options, PetscInt length)
{
    const PetscInt stride = options->strided ? 2 : 1;
    struct operation operations[MAX_TYPES];
    double making[MAX_TYPES];
    PetscReal *roots, *leaves;

    PetscFunctionBeginUser;
    PetscCall(PetscCalloc2(NUM_FACES * length * stride, &roots, NUM_FACES * length, &leaves));
    for (PetscInt i = 0; i < options->num_types; i++) {
        operations[i] = (struct operation){.roots = roots, .leaves = leaves};
        PetscCall(time_making(options->types[i], length, stride, &operations[i], &making[i]));
    }
    PetscCall(print_line("set-up", length, options->num_types, making));
    PetscCall(time_line(options, operations, length, PETSC_FALSE));
    PetscCall(time_line(options, operations, length, PETSC_TRUE));
    for (PetscInt i = 0; i < options->num_types; i++)
        PetscCall(PetscSFDestroy(&operations[i].star));
    PetscCall(PetscFree2(roots, leaves));
    PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
    struct options options = {0};
    PetscMPIInt size;

    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(read_options(&options));
    PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &size));
    PetscCall(PetscPrintf(
        PETSC_COMM_WORLD,
        "# %d ranks, median of %d repetitions, us of the slowest rank; set-up: one star\n"
        "#         face (B)",
        size, (int)options.repetitions));
    for (PetscInt i = 0; i < options.num_types; i++)
        PetscCall(PetscPrintf(PETSC_COMM_WORLD, " %10s", options.types[i]));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "\n"));
    for (PetscInt i = 0; i < options.num_lengths; i++)
        PetscCall(time_length(&options, options.lengths[i]));
    for (PetscInt i = 0; i < options.num_types; i++)
        PetscCall(PetscFree(options.types[i]));
    PetscCall(PetscFinalize());
    return 0;
}
