/* SPDX-License-Identifier: BSD-3-Clause */
/* star_embed.c - makes a star of some roots of another star and of their leaves. */
#include "star.h"

/* kept[i] is set for the leaves, by index, whose root is selected; the range is that of sf. */
static PetscErrorCode mark_leaves(PetscSF sf, PetscInt num_selected, const PetscInt selected[],
                                  signed char kept[])
{
    signed char *marks;

    PetscFunctionBegin;
    PetscCall(PetscCalloc1(sf->nroots, &marks));
    for (PetscInt i = 0; i < num_selected; i++)
        marks[selected[i]] = 1;
    PetscCall(PetscSFBcastBegin(sf, MPI_SIGNED_CHAR, marks, kept - sf->minleaf, MPI_REPLACE));
    PetscCall(PetscSFBcastEnd(sf, MPI_SIGNED_CHAR, marks, kept - sf->minleaf, MPI_REPLACE));
    PetscCall(PetscFree(marks));
    PetscFunctionReturn(0);
}

PetscErrorCode star_embed_roots(PetscSF sf, PetscInt num_selected, const PetscInt selected[],
                                PetscSF *embedded)
{
    PetscInt num = 0, *places;
    PetscSFNode *roots;
    signed char *kept;

    PetscFunctionBegin;
    PetscCall(PetscCalloc1(sf->maxleaf - sf->minleaf + 1, &kept));
    PetscCall(mark_leaves(sf, num_selected, selected, kept));
    PetscCall(PetscMalloc1(sf->nleaves, &places));
    PetscCall(PetscMalloc1(sf->nleaves, &roots));
    for (PetscInt i = 0; i < sf->nleaves; i++) {
        const PetscInt place = sf->mine ? sf->mine[i] : i;

        if (kept[place - sf->minleaf]) {
            places[num] = place;
            roots[num++] = sf->remote[i];
        }
    }
    PetscCall(PetscFree(kept));
    PetscCall(PetscSFDuplicate(sf, PETSCSF_DUPLICATE_CONFONLY, embedded));
    PetscCall(PetscSFSetGraph(*embedded, sf->nroots, num, places, PETSC_OWN_POINTER, roots,
                              PETSC_OWN_POINTER));
    PetscFunctionReturn(0);
}
