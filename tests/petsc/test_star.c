/* SPDX-License-Identifier: BSD-3-Clause */
/* test_star.c - stars of type epx do what stars of type basic do, byte for byte: every operation,
   unit and MPI_Op, several in flight, on random graphs, with ranks that have nothing. */
#include <stdio.h>
#include <string.h>

#include "petsc/star_pairs.h"

enum { MOST_UNIT_BYTES = 256, MOST_UNITS = 512, IN_FLIGHT = 5 };

/* The data of one operation: roots, leaves, and what a fetch tells the leaves. */
struct data {
    char roots[MOST_UNITS * MOST_UNIT_BYTES];
    char leaves[MOST_UNITS * MOST_UNIT_BYTES];
    char update[MOST_UNITS * MOST_UNIT_BYTES];
};

static struct data data[NUM_TYPES][IN_FLIGHT];
static int num_faults;

static void expect(int right, const char *what, const char *unit, const char *op)
{
    PetscMPIInt rank;

    MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
    if (!right && num_faults++ < 20)
        fprintf(stderr, "rank %d: %s of %s by %s differs\n", rank, what, unit, op);
}

/* The bytes that the type speaks of: a gap may hold anything. */
static int same_units(const struct unit_case *unit, PetscInt num, const char *a, const char *b)
{
    static char packed[2][MOST_UNITS * MOST_UNIT_BYTES];
    const char *const both[2] = {a, b};
    int at[2] = {0, 0};

    for (int i = 0; i < 2; i++)
        MPI_Pack(both[i], (int)num, unit->type, packed[i], sizeof(packed[i]), &at[i],
                 PETSC_COMM_SELF);
    return at[0] == at[1] && memcmp(packed[0], packed[1], (size_t)at[0]) == 0;
}

static PetscErrorCode fill(const struct pair *pair, const struct unit_case *unit, int i)
{
    PetscFunctionBeginUser;
    PetscCall(random_units(unit, pair->num_roots, data[BASIC][i].roots));
    PetscCall(random_units(unit, pair->num_places, data[BASIC][i].leaves));
    PetscCall(random_units(unit, pair->num_places, data[BASIC][i].update));
    data[EPX][i] = data[BASIC][i];
    PetscFunctionReturn(0);
}

static void compare(const struct pair *pair, const struct unit_case *unit, int i, const char *what,
                    const char *op)
{
    const struct data *const a = &data[BASIC][i], *const b = &data[EPX][i];

    expect(same_units(unit, pair->num_roots, a->roots, b->roots) &&
               same_units(unit, pair->num_places, a->leaves, b->leaves) &&
               same_units(unit, pair->num_places, a->update, b->update),
           what, unit->name, op);
}

enum operation { BCAST, REDUCE, FETCH, NUM_OPERATIONS };
static const char *const operation_names[NUM_OPERATIONS] = {"broadcast", "reduce", "fetch"};

static PetscErrorCode begin(enum operation operation, PetscSF star, MPI_Datatype type,
                            struct data *d, MPI_Op op)
{
    PetscFunctionBeginUser;
    if (operation == BCAST)
        PetscCall(PetscSFBcastBegin(star, type, d->roots, d->leaves, op));
    else if (operation == REDUCE)
        PetscCall(PetscSFReduceBegin(star, type, d->leaves, d->roots, op));
    else
        PetscCall(PetscSFFetchAndOpBegin(star, type, d->roots, d->leaves, d->update, op));
    PetscFunctionReturn(0);
}

static PetscErrorCode end(enum operation operation, PetscSF star, MPI_Datatype type, struct data *d,
                          MPI_Op op)
{
    PetscFunctionBeginUser;
    if (operation == BCAST)
        PetscCall(PetscSFBcastEnd(star, type, d->roots, d->leaves, op));
    else if (operation == REDUCE)
        PetscCall(PetscSFReduceEnd(star, type, d->leaves, d->roots, op));
    else
        PetscCall(PetscSFFetchAndOpEnd(star, type, d->roots, d->leaves, d->update, op));
    PetscFunctionReturn(0);
}

/* PETSc's types fetch sums alone, of what has a sum by PETSc. */
static int can_fetch(const struct unit_case *unit, const struct op_case *op)
{
    PetscMPIInt bytes;

    if ((op->letter != '+' && op->letter != 'S') || unit->type == MPI_LONG ||
        unit->type == MPI_FLOAT)
        return 0;
    MPI_Type_size(unit->type, &bytes);
    return bytes > 0;
}

static PetscErrorCode try_operation(const struct pair *pair, const struct unit_case *unit,
                                    const struct op_case *op, enum operation operation)
{
    PetscFunctionBeginUser;
    PetscCall(fill(pair, unit, 0));
    for (int i = 0; i < NUM_TYPES; i++) {
        PetscCall(begin(operation, pair->stars[i], unit->type, &data[i][0], op->op));
        PetscCall(end(operation, pair->stars[i], unit->type, &data[i][0], op->op));
    }
    compare(pair, unit, 0, operation_names[operation], op->name);
    PetscFunctionReturn(0);
}

static PetscErrorCode each_operation_gives_the_same(const struct pair *pair,
                                                    const struct cases *cases)
{
    PetscFunctionBeginUser;
    for (int u = 0; u < cases->num_units; u++)
        for (int o = 0; o < cases->num_ops; o++) {
            const struct unit_case *const unit = &cases->units[u];
            const struct op_case *const op = &cases->ops[o];

            if (!strchr(unit->ops, op->letter))
                continue;
            PetscCall(try_operation(pair, unit, op, BCAST));
            /* of several leaves of a root PETSc may keep any: types need not keep the same */
            if (op->op != MPI_REPLACE || pair->single)
                PetscCall(try_operation(pair, unit, op, REDUCE));
            if (can_fetch(unit, op))
                PetscCall(try_operation(pair, unit, op, FETCH));
        }
    PetscFunctionReturn(0);
}

/* Starts a random mix, and ends it in another order, the same on all ranks and both types. */
static PetscErrorCode run_mix(PetscSF star, struct data own[IN_FLIGHT],
                              const struct unit_case *units[IN_FLIGHT],
                              const enum operation operations[IN_FLIGHT])
{
    const int order[IN_FLIGHT] = {3, 0, 4, 2, 1};

    PetscFunctionBeginUser;
    for (int i = 0; i < IN_FLIGHT; i++)
        PetscCall(begin(operations[i], star, units[i]->type, &own[i],
                        operations[i] == BCAST ? MPI_REPLACE : MPI_SUM));
    for (int i = 0; i < IN_FLIGHT; i++)
        PetscCall(end(operations[order[i]], star, units[order[i]]->type, &own[order[i]],
                      operations[order[i]] == BCAST ? MPI_REPLACE : MPI_SUM));
    PetscFunctionReturn(0);
}

static PetscErrorCode several_are_in_flight(const struct pair *pair, const struct cases *cases,
                                            int round)
{
    const struct unit_case *units[IN_FLIGHT];
    enum operation operations[IN_FLIGHT];

    PetscFunctionBeginUser;
    for (int i = 0; i < IN_FLIGHT; i++) {
        units[i] = &cases->units[(round + (i > 2)) % 3]; /* int, PetscInt, real */
        operations[i] = (enum operation)((round + i) % NUM_OPERATIONS);
        PetscCall(fill(pair, units[i], i));
    }
    for (int i = 0; i < NUM_TYPES; i++)
        PetscCall(run_mix(pair->stars[i], data[i], units, operations));
    for (int i = 0; i < IN_FLIGHT; i++)
        compare(pair, units[i], i, "one of several", operation_names[operations[i]]);
    PetscFunctionReturn(0);
}

/* Gather wants room for all leaves of a root; a scatter brings them back. */
static PetscErrorCode gather_and_scatter(const struct pair *pair)
{
    const struct unit_case unit = {"PetscInt", MPIU_INT, SMALL_INTS, sizeof(PetscInt), ""};
    const PetscInt *degrees[NUM_TYPES];
    PetscInt num = 0;

    PetscFunctionBeginUser;
    for (int i = 0; i < NUM_TYPES; i++) {
        PetscCall(PetscSFComputeDegreeBegin(pair->stars[i], &degrees[i]));
        PetscCall(PetscSFComputeDegreeEnd(pair->stars[i], &degrees[i]));
    }
    for (PetscInt i = 0; i < pair->num_roots; i++) {
        expect(degrees[BASIC][i] == degrees[EPX][i], "the degree", "a root", "sum");
        num += degrees[BASIC][i];
    }
    PetscCall(fill(pair, &unit, 0));
    for (int i = 0; i < NUM_TYPES; i++) {
        struct data *const d = &data[i][0];

        PetscCall(PetscSFGatherBegin(pair->stars[i], MPIU_INT, d->leaves, d->roots));
        PetscCall(PetscSFGatherEnd(pair->stars[i], MPIU_INT, d->leaves, d->roots));
        PetscCall(PetscSFScatterBegin(pair->stars[i], MPIU_INT, d->roots, d->update));
        PetscCall(PetscSFScatterEnd(pair->stars[i], MPIU_INT, d->roots, d->update));
    }
    expect(same_units(&unit, num, data[BASIC][0].roots, data[EPX][0].roots), "gather", "PetscInt",
           "order");
    compare(pair, &unit, 0, "scatter", "order");
    PetscFunctionReturn(0);
}

static void compare_ranks(PetscInt num[2], const PetscMPIInt *ranks[2], const PetscInt *offsets[2],
                          const PetscInt *places[2])
{
    int right = num[BASIC] == num[EPX];

    if (right && num[BASIC] > 0)
        right = !memcmp(ranks[0], ranks[1], (size_t)num[0] * sizeof(PetscMPIInt)) &&
                !memcmp(offsets[0], offsets[1], (size_t)(num[0] + 1) * sizeof(PetscInt)) &&
                !memcmp(places[0], places[1], (size_t)offsets[0][num[0]] * sizeof(PetscInt));
    expect(right, "the list", "ranks", "neighbours");
}

static PetscErrorCode neighbors_are_the_same(const struct pair *pair)
{
    const PetscInt *offsets[NUM_TYPES], *places[NUM_TYPES];
    const PetscMPIInt *ranks[NUM_TYPES];
    PetscInt num[NUM_TYPES];

    PetscFunctionBeginUser;
    for (int i = 0; i < NUM_TYPES; i++)
        PetscCall(PetscSFGetLeafRanks(pair->stars[i], &num[i], &ranks[i], &offsets[i], &places[i]));
    compare_ranks(num, ranks, offsets, places);
    for (int i = 0; i < NUM_TYPES; i++)
        PetscCall(
            PetscSFGetRootRanks(pair->stars[i], &num[i], &ranks[i], &offsets[i], &places[i], NULL));
    compare_ranks(num, ranks, offsets, places);
    PetscFunctionReturn(0);
}

/* Stars that are made of others keep the type. */
static PetscErrorCode try_derived(const struct pair *pair, const char *what,
                                  const struct cases *cases, struct pair *derived)
{
    PetscSFType type;

    PetscFunctionBeginUser;
    derived->num_roots = pair->num_roots;
    derived->num_places = pair->num_places;
    PetscCall(PetscSFGetType(derived->stars[EPX], &type));
    expect(!strcmp(type, "epx"), what, "a star", "type");
    for (int i = 0; i < NUM_TYPES; i++)
        PetscCall(PetscSFSetUp(derived->stars[i]));
    PetscCall(try_operation(derived, &cases->units[2], &cases->ops[0], BCAST));
    PetscCall(try_operation(derived, &cases->units[2], &cases->ops[1], REDUCE));
    PetscCall(pair_free(derived));
    PetscFunctionReturn(0);
}

static PetscErrorCode derived_stars_work(const struct pair *pair, const struct cases *cases)
{
    PetscInt selected[MOST_UNITS], num = 0, num_leaves;
    struct pair derived;

    PetscFunctionBeginUser;
    for (int i = 0; i < NUM_TYPES; i++)
        PetscCall(PetscSFDuplicate(pair->stars[i], PETSCSF_DUPLICATE_GRAPH, &derived.stars[i]));
    PetscCall(try_derived(pair, "a duplicate", cases, &derived));
    for (PetscInt i = 0; i < pair->num_roots; i++)
        if (random_below(2))
            selected[num++] = i;
    for (int i = 0; i < NUM_TYPES; i++)
        PetscCall(PetscSFCreateEmbeddedRootSF(pair->stars[i], num, selected, &derived.stars[i]));
    PetscCall(try_derived(pair, "some roots", cases, &derived));
    PetscCall(PetscSFGetGraph(pair->stars[BASIC], NULL, &num_leaves, NULL, NULL));
    for (num = 0; num < num_leaves; num++)
        selected[num] = num;
    num = (num_leaves + 1) / 2;
    for (int i = 0; i < NUM_TYPES; i++)
        PetscCall(PetscSFCreateEmbeddedLeafSF(pair->stars[i], num, selected, &derived.stars[i]));
    PetscCall(try_derived(pair, "some leaves", cases, &derived));
    PetscFunctionReturn(0);
}

/* A rank without roots and leaves may have NULL for all data, of several operations at a time. */
static PetscErrorCode null_data_are_fine(const struct pair *pair)
{
    const int nothing = pair->num_roots == 0 && pair->num_places == 0;
    const struct unit_case unit = {"int", MPI_INT, SMALL_INTS, sizeof(int), ""};

    PetscFunctionBeginUser;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++)
            PetscCall(fill(pair, &unit, i));
        for (int type = 0; type < NUM_TYPES; type++) {
            for (int i = 0; i < 3; i++) {
                struct data *const d = &data[type][i];

                PetscCall(PetscSFBcastBegin(pair->stars[type], MPI_INT, nothing ? NULL : d->roots,
                                            nothing ? NULL : d->leaves, MPI_REPLACE));
            }
            for (int i = 2; i >= 0; i--) {
                struct data *const d = &data[type][i];

                PetscCall(PetscSFBcastEnd(pair->stars[type], MPI_INT, nothing ? NULL : d->roots,
                                          nothing ? NULL : d->leaves, MPI_REPLACE));
            }
        }
        for (int i = 0; i < 3; i++)
            compare(pair, &unit, i, "without data", "replace");
    }
    PetscFunctionReturn(0);
}

/* A new graph on a star that was used. */
static PetscErrorCode graphs_can_be_changed(const struct pair *pair, const struct cases *cases)
{
    PetscMPIInt rank, size;
    struct pair changed = {.num_roots = 2, .num_places = 2};

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
    PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &size));
    for (int i = 0; i < NUM_TYPES; i++) {
        PetscSFNode nodes[2] = {{(rank + 1) % size, 1}, {(rank + size - 1) % size, 0}};

        changed.stars[i] = pair->stars[i];
        PetscCall(PetscSFSetGraph(changed.stars[i], 2, 2, NULL, PETSC_COPY_VALUES, nodes,
                                  PETSC_COPY_VALUES));
        PetscCall(PetscSFSetUp(changed.stars[i]));
    }
    for (int unit = 0; unit < 3; unit++) {
        PetscCall(try_operation(&changed, &cases->units[unit], &cases->ops[0], BCAST));
        PetscCall(try_operation(&changed, &cases->units[unit], &cases->ops[0], REDUCE));
        PetscCall(try_operation(&changed, &cases->units[unit], &cases->ops[1], FETCH));
    }
    PetscFunctionReturn(0);
}

static PetscErrorCode try_shape(int shape, const struct cases *cases)
{
    struct pair pair;

    PetscFunctionBeginUser;
    random_seed((unsigned long)shape + 1);
    PetscCall(pair_make(shape, &pair));
    PetscCall(neighbors_are_the_same(&pair));
    PetscCall(each_operation_gives_the_same(&pair, cases));
    for (int round = 0; round < 6; round++)
        PetscCall(several_are_in_flight(&pair, cases, round));
    PetscCall(gather_and_scatter(&pair));
    PetscCall(derived_stars_work(&pair, cases));
    PetscCall(null_data_are_fine(&pair));
    PetscCall(graphs_can_be_changed(&pair, cases));
    PetscCall(pair_free(&pair));
    PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
    struct cases cases;
    PetscMPIInt rank;

    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(cases_make(&cases));
    for (int shape = 0; shape < NUM_SHAPES; shape++)
        PetscCall(try_shape(shape, &cases));
    PetscCall(cases_free(&cases));
    PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
    PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &num_faults, 1, MPI_INT, MPI_SUM, PETSC_COMM_WORLD));
    PetscCall(PetscFinalize());
    if (rank == 0)
        printf(num_faults ? " Found %d errors\n" : " No Errors\n", num_faults);
    return num_faults > 0;
}
