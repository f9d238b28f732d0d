/* SPDX-License-Identifier: BSD-3-Clause */
/* star_pairs.c - random stars, units and their values. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "petsc/star_pairs.h"

static uint64_t state;

void random_seed(unsigned long seed)
{
    PetscMPIInt rank;

    MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
    state = (seed * 64 + (unsigned long)rank) * 2654435761u + 88172645463325252u;
}

/* xorshift64 of George Marsaglia, "Xorshift RNGs", 2003. */
unsigned long random_below(unsigned long bound)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned long)((state >> 16) % bound);
}

/* Small integers: sums and products of many do not overflow, which C leaves undefined. */
static void random_element(const struct unit_case *unit, void *element)
{
    const int small = (int)random_below(5) - 2;
    const double real = ((double)random_below(2000001) - 1000000.0) / 700000.0;

    if (unit->values == REALS && unit->element_bytes == sizeof(double))
        memcpy(element, &real, sizeof(double));
    else if (unit->values == REALS)
        memcpy(element, &(float){(float)real}, sizeof(float));
    else if (unit->values == SMALL_INTS && unit->element_bytes == sizeof(long))
        memcpy(element, &(long){small}, sizeof(long));
    else if (unit->values == SMALL_INTS)
        memcpy(element, &small, sizeof(int));
    else
        *(unsigned char *)element = (unsigned char)random_below(256);
}

PetscErrorCode random_units(const struct unit_case *unit, PetscInt num, void *units)
{
    MPI_Aint lower_bound, extent;

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Type_get_extent(unit->type, &lower_bound, &extent));
    for (size_t at = 0; at < (size_t)num * (size_t)extent; at += unit->element_bytes)
        random_element(unit, (char *)units + at);
    PetscFunctionReturn(0);
}

/* An operation of the program's own, on whole units of three reals: the longer vector stays. */
static void keep_longer(void *in, void *in_out, int *num, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *num; i++) {
        const double *const a = (const double *)in + 3 * i;
        double *const b = (double *)in_out + 3 * i;

        if (a[0] * a[0] + a[1] * a[1] + a[2] * a[2] > b[0] * b[0] + b[1] * b[1] + b[2] * b[2])
            memcpy(b, a, 3 * sizeof(double));
    }
}

static PetscErrorCode make_ops(struct cases *cases)
{
    const struct op_case known[] = {
        {'=', "replace", MPI_REPLACE}, {'+', "sum", MPI_SUM},      {'*', "prod", MPI_PROD},
        {'M', "max", MPI_MAX},         {'m', "min", MPI_MIN},      {'a', "land", MPI_LAND},
        {'o', "lor", MPI_LOR},         {'x', "lxor", MPI_LXOR},    {'&', "band", MPI_BAND},
        {'|', "bor", MPI_BOR},         {'^', "bxor", MPI_BXOR},    {'L', "maxloc", MPI_MAXLOC},
        {'l', "minloc", MPI_MINLOC},   {'S', "MPIU_SUM", MPIU_SUM}};

    PetscFunctionBeginUser;
    cases->num_ops = sizeof(known) / sizeof(known[0]);
    memcpy(cases->ops, known, sizeof(known));
    cases->ops[cases->num_ops] = (struct op_case){.letter = 'u', .name = "the program's own"};
    PetscCallMPI(MPI_Op_create(keep_longer, 1, &cases->ops[cases->num_ops].op));
    cases->num_ops++;
    PetscFunctionReturn(0);
}

/* type may be built in; what is committed is a type made of it. */
static PetscErrorCode add(struct cases *cases, struct unit_case unit, PetscMPIInt num)
{
    struct unit_case *const added = &cases->units[cases->num_units++];

    PetscFunctionBeginUser;
    *added = unit;
    if (num > 0)
        PetscCallMPI(MPI_Type_contiguous(num, unit.type, &added->type));
    else
        PetscCallMPI(MPI_Type_dup(unit.type, &added->type));
    PetscCallMPI(MPI_Type_commit(&added->type));
    PetscFunctionReturn(0);
}

/* Two numbers with a gap between them, of which no byte may be looked at. */
static PetscErrorCode add_struct(struct cases *cases)
{
    struct with_gap {
        char first;
        double second;
    };
    const int lengths[2] = {1, 1};
    const MPI_Aint places[2] = {offsetof(struct with_gap, first),
                                offsetof(struct with_gap, second)};
    const MPI_Datatype types[2] = {MPI_CHAR, MPI_DOUBLE};
    MPI_Datatype made;

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Type_create_struct(2, lengths, places, types, &made));
    PetscCall(add(cases, (struct unit_case){"a struct with a gap", made, BYTES, 1, "="}, 1));
    PetscCallMPI(MPI_Type_free(&made));
    PetscFunctionReturn(0);
}

#define ANY "=+*MmaoxS&|^"

/* num 0: the type itself, as a duplicate. */
static PetscErrorCode add_units(struct cases *cases)
{
    const struct {
        struct unit_case unit;
        PetscMPIInt num;
    } made[] = {
        {{"dup of int", MPI_INT, SMALL_INTS, sizeof(int), ANY}, 0},
        {{"2 ints", MPI_INT, SMALL_INTS, sizeof(int), ANY}, 2},
        {{"5 PetscInts", MPIU_INT, SMALL_INTS, sizeof(PetscInt), ANY}, 5},
        {{"1 real", MPIU_REAL, REALS, sizeof(PetscReal), "=+*MmS"}, 1},
        {{"3 reals", MPIU_REAL, REALS, sizeof(PetscReal), "=+*MmSu"}, 3},
        {{"8 reals", MPIU_REAL, REALS, sizeof(PetscReal), "=+*Mm"}, 8},
        {{"17 reals", MPIU_REAL, REALS, sizeof(PetscReal), "=+*Mm"}, 17},
        {{"2 complex", MPIU_COMPLEX, REALS, sizeof(PetscReal), "=+*"}, 2},
        {{"7 signed chars", MPI_SIGNED_CHAR, BYTES, 1, "=&|^aoxMm"}, 7},
        {{"4 unsigned chars", MPI_UNSIGNED_CHAR, BYTES, 1, "=+*&|^aoxMm"}, 4},
        {{"3 chars", MPI_CHAR, BYTES, 1, "="}, 3},
        {{"dup of pair", MPI_2INT, SMALL_INTS, sizeof(int), "=Ll"}, 0},
        {{"4 longs", MPI_LONG, SMALL_INTS, sizeof(long), "="}, 4},
    };

    PetscFunctionBeginUser;
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
        PetscCall(add(cases, made[i].unit, made[i].num));
    PetscCall(add_struct(cases));
    PetscFunctionReturn(0);
}

static void add_built_in(struct cases *cases)
{
    const struct unit_case known[] = {
        {"int", MPI_INT, SMALL_INTS, sizeof(int), ANY},
        {"PetscInt", MPIU_INT, SMALL_INTS, sizeof(PetscInt), ANY},
        {"real", MPIU_REAL, REALS, sizeof(PetscReal), "=+*MmS"},
        {"scalar", MPIU_SCALAR, REALS, sizeof(PetscReal), "=+*S"},
        {"complex", MPIU_COMPLEX, REALS, sizeof(PetscReal), "=+*"},
        {"signed char", MPI_SIGNED_CHAR, BYTES, 1, "=&|^aoxMm"},
        {"unsigned char", MPI_UNSIGNED_CHAR, BYTES, 1, "=+*&|^aoxMm"},
        {"char", MPI_CHAR, BYTES, 1, "="},
        {"byte", MPI_BYTE, BYTES, 1, "=&|^"},
        {"float", MPI_FLOAT, REALS, sizeof(float), "=+*Mm"},
        {"long", MPI_LONG, SMALL_INTS, sizeof(long), "=+*Mmaox&|^"},
        {"pair of ints", MPI_2INT, SMALL_INTS, sizeof(int), "=Ll"},
        {"pair of PetscInts", MPIU_2INT, SMALL_INTS, sizeof(PetscInt), "=Ll"},
    };

    memcpy(cases->units, known, sizeof(known));
    cases->num_units = sizeof(known) / sizeof(known[0]);
}

PetscErrorCode cases_make(struct cases *cases)
{
    PetscFunctionBeginUser;
    PetscCall(make_ops(cases));
    add_built_in(cases);
    PetscCall(add_units(cases));
    PetscFunctionReturn(0);
}

PetscErrorCode cases_free(struct cases *cases)
{
    PetscMPIInt num_ints, num_addresses, num_types, combiner;

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Op_free(&cases->ops[cases->num_ops - 1].op));
    for (int i = 0; i < cases->num_units; i++) {
        PetscCallMPI(MPI_Type_get_envelope(cases->units[i].type, &num_ints, &num_addresses,
                                           &num_types, &combiner));
        if (combiner != MPI_COMBINER_NAMED)
            PetscCallMPI(MPI_Type_free(&cases->units[i].type));
    }
    PetscFunctionReturn(0);
}

/* Roots of each rank: many, a few, none on every third, one rank has all, blocks, none at all. */
static PetscInt choose_roots(int shape, PetscMPIInt rank)
{
    switch (shape) {
    case 1: return 3;
    case 2: return rank % 3 == 1 ? 0 : 20;
    case 3: return rank == 0 ? 50 : 0;
    case 4: return 64;
    case 5: return 0;
    default: return 1 + (PetscInt)random_below(40);
    }
}

static PetscInt choose_leaves(int shape, PetscMPIInt rank)
{
    switch (shape) {
    case 1: return 1 + (PetscInt)random_below(30);
    case 2: return rank % 3 == 2 ? 0 : 25;
    case 4: return 48;
    case 5: return 0;
    default: return (PetscInt)random_below(60);
    }
}

/* Shape 4 is runs of 16 roots, one rank after the other; the rest is at random. */
static PetscSFNode choose_root(int shape, PetscInt i, const PetscInt roots[], PetscMPIInt size)
{
    PetscSFNode node = {(PetscInt)random_below((unsigned long)size), 0};

    if (shape == 4)
        node.rank = i / 16 % size;
    while (roots[node.rank] == 0)
        node.rank = (node.rank + 1) % size;
    node.index = shape == 4 ? i : (PetscInt)random_below((unsigned long)roots[node.rank]);
    return node;
}

/* Places of leaves ascend, with gaps in the even shapes but 4. */
static void choose_edges(int shape, PetscInt num, const PetscInt roots[], PetscInt places[],
                         PetscSFNode nodes[])
{
    PetscMPIInt size;
    PetscInt place = 0;

    MPI_Comm_size(PETSC_COMM_WORLD, &size);
    for (PetscInt i = 0; i < num; i++) {
        place += shape % 2 == 0 && shape != 4 ? (PetscInt)random_below(3) : 0;
        places[i] = place++;
        nodes[i] = choose_root(shape, i, roots, size);
    }
}

static PetscErrorCode find_single(struct pair *pair)
{
    const PetscInt *degree;
    int single = 1;

    PetscFunctionBeginUser;
    PetscCall(PetscSFComputeDegreeBegin(pair->stars[0], &degree));
    PetscCall(PetscSFComputeDegreeEnd(pair->stars[0], &degree));
    for (PetscInt i = 0; i < pair->num_roots; i++)
        single = single && degree[i] <= 1;
    PetscCallMPI(MPI_Allreduce(&single, &pair->single, 1, MPI_INT, MPI_MIN, PETSC_COMM_WORLD));
    PetscFunctionReturn(0);
}

PetscErrorCode pair_make(int shape, struct pair *pair)
{
    const char *const types[NUM_TYPES] = {"basic", "epx"};
    PetscInt num, *all_roots, *places;
    PetscMPIInt rank, size;
    PetscSFNode *nodes;

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
    PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &size));
    pair->num_roots = choose_roots(shape, rank);
    num = choose_leaves(shape, rank);
    PetscCall(PetscMalloc3(size, &all_roots, num, &places, num, &nodes));
    PetscCallMPI(
        MPI_Allgather(&pair->num_roots, 1, MPIU_INT, all_roots, 1, MPIU_INT, PETSC_COMM_WORLD));
    choose_edges(shape, num, all_roots, places, nodes);
    pair->num_places = num > 0 ? places[num - 1] + 1 : 0;
    for (int i = 0; i < NUM_TYPES; i++) {
        PetscCall(PetscSFCreate(PETSC_COMM_WORLD, &pair->stars[i]));
        PetscCall(PetscSFSetType(pair->stars[i], types[i]));
        PetscCall(PetscSFSetGraph(pair->stars[i], pair->num_roots, num, places, PETSC_COPY_VALUES,
                                  nodes, PETSC_COPY_VALUES));
        PetscCall(PetscSFSetUp(pair->stars[i]));
    }
    PetscCall(PetscFree3(all_roots, places, nodes));
    PetscCall(find_single(pair));
    PetscFunctionReturn(0);
}

PetscErrorCode pair_free(struct pair *pair)
{
    PetscFunctionBeginUser;
    for (int i = 0; i < NUM_TYPES; i++)
        PetscCall(PetscSFDestroy(&pair->stars[i]));
    PetscFunctionReturn(0);
}
