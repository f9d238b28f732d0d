/* SPDX-License-Identifier: BSD-3-Clause */
/* unit.c - tells what a unit is made of as PETSc's basic stars do, and chooses the loop for it. */
#include <petsc/private/sfimpl.h>

#include "unit.h"

static PetscErrorCode note_pair(struct unit *unit)
{
    PetscBool same;

    PetscFunctionBegin;
    PetscCall(MPIPetsc_Type_compare(unit->type, MPI_2INT, &same));
    if (same) {
        unit->element = ELEMENT_INT_PAIR;
        unit->bytes = 2 * sizeof(int);
    } else {
        PetscCall(MPIPetsc_Type_compare(unit->type, MPIU_2INT, &same));
        if (same) {
            unit->element = ELEMENT_PETSC_INT_PAIR;
            unit->bytes = 2 * sizeof(PetscInt);
        }
    }
    unit->width = unit->element != ELEMENT_BYTE;
    PetscFunctionReturn(0);
}

/* The order decides where a type is several of these. */
static PetscErrorCode note_elements(struct unit *unit)
{
    const struct {
        MPI_Datatype type;
        enum element element;
        size_t bytes;
    } known[] = {
        {MPIU_REAL, ELEMENT_REAL, sizeof(PetscReal)},
        {MPIU_INT, ELEMENT_PETSC_INT, sizeof(PetscInt)},
        {MPI_INT, ELEMENT_INT, sizeof(int)},
        {MPI_SIGNED_CHAR, ELEMENT_SIGNED_CHAR, 1},
        {MPI_UNSIGNED_CHAR, ELEMENT_UNSIGNED_CHAR, 1},
#if defined(PETSC_HAVE_COMPLEX)
        {MPIU_COMPLEX, ELEMENT_COMPLEX, sizeof(PetscComplex)},
#endif
    };

    PetscFunctionBegin;
    for (size_t i = 0; unit->width == 0 && i < sizeof(known) / sizeof(known[0]); i++) {
        PetscCall(MPIPetsc_Type_compare_contig(unit->type, known[i].type, &unit->width));
        if (unit->width > 0) {
            unit->element = known[i].element;
            unit->bytes = unit->width * known[i].bytes;
        }
    }
    PetscFunctionReturn(0);
}

static PetscErrorCode note_bytes(struct unit *unit)
{
    MPI_Aint lower_bound, extent;

    PetscFunctionBegin;
    PetscCallMPI(MPI_Type_get_extent(unit->type, &lower_bound, &extent));
    PetscCheck(lower_bound == 0, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "Datatype with nonzero lower bound %ld", (long)lower_bound);
    PetscCheck(extent > 0 && extent <= PETSC_MAX_INT, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "Datatype with an extent of %ld bytes", (long)extent);
    unit->bytes = extent;
    unit->width = extent;
    PetscFunctionReturn(0);
}

/* The duplicate is there because the caller may free its type between two operations. */
static PetscErrorCode keep_type(MPI_Datatype type, struct unit *unit)
{
    PetscMPIInt num_ints, num_addresses, num_types, combiner;

    PetscFunctionBegin;
    PetscCallMPI(MPI_Type_get_envelope(type, &num_ints, &num_addresses, &num_types, &combiner));
    unit->built_in = (PetscBool)(combiner == MPI_COMBINER_NAMED);
    unit->type = type;
    if (!unit->built_in)
        PetscCallMPI(MPI_Type_dup(type, &unit->type));
    PetscFunctionReturn(0);
}

PetscErrorCode unit_of(MPI_Datatype type, struct unit **list, struct unit **unit)
{
    struct unit *made;
    PetscBool same;

    PetscFunctionBegin;
    for (*unit = *list; *unit; *unit = (*unit)->next) {
        PetscCall(MPIPetsc_Type_compare(type, (*unit)->type, &same));
        if (same)
            PetscFunctionReturn(0);
    }
    PetscCall(PetscNew(&made));
    PetscCall(keep_type(type, made));
    made->next = *list;
    *list = made;
    PetscCall(note_pair(made));
    PetscCall(note_elements(made));
    if (made->width == 0)
        PetscCall(note_bytes(made));
    *unit = made;
    PetscFunctionReturn(0);
}

PetscErrorCode units_free(struct unit **list)
{
    PetscFunctionBegin;
    while (*list) {
        struct unit *unit = *list;

        *list = unit->next;
        if (!unit->built_in)
            PetscCallMPI(MPI_Type_free(&unit->type));
        PetscCall(PetscFree(unit));
    }
    PetscFunctionReturn(0);
}

PetscErrorCode unit_copy(const struct unit *unit, struct move move)
{
    PetscFunctionBegin;
    move.width = unit->bytes;
    copy_units(&move);
    PetscFunctionReturn(0);
}

/* MPI does what has no loop here, such as an operation of the program's own on whole units. */
static PetscErrorCode combine_by_mpi(const struct unit *unit, const struct move *move, MPI_Op op)
{
    PetscFunctionBegin;
    for (PetscInt i = 0; i < move->from->count; i++)
        PetscCallMPI(MPI_Reduce_local(
            (const char *)move->source + place_of(move->from, i) * unit->bytes,
            (char *)move->target + place_of(move->to, i) * unit->bytes, 1, unit->type, op));
    PetscFunctionReturn(0);
}

PetscErrorCode unit_combine(const struct unit *unit, struct move move, MPI_Op op)
{
    combine_function *const combine = find_combine(unit->element, op);

    PetscFunctionBegin;
    move.width = unit->width;
    if (op == MPI_REPLACE)
        PetscCall(unit_copy(unit, move));
    else if (combine)
        combine(&move);
    else
        PetscCall(combine_by_mpi(unit, &move, op));
    PetscFunctionReturn(0);
}

PetscErrorCode unit_fetch(const struct unit *unit, struct move move, MPI_Op op)
{
    combine_function *const fetch = find_fetch_and_add(unit->element);

    PetscFunctionBegin;
    PetscCheck((op == MPI_SUM || op == MPIU_SUM) && fetch, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "No support for this MPI_Op on these elements in FetchAndOp");
    move.width = unit->width;
    fetch(&move);
    PetscFunctionReturn(0);
}
