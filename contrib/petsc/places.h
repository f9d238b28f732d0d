/* SPDX-License-Identifier: BSD-3-Clause */
/* places.h - where the units of one side of an exchange lie: at indices into the caller's array, or
   one behind the other. */
#ifndef EPX_PETSC_PLACES_H
#define EPX_PETSC_PLACES_H

#include <petscsys.h>

struct places {
    PetscInt count;
    PetscInt first;        /* the place of the first unit, where index is NULL */
    const PetscInt *index; /* [count], or NULL: units lie one behind the other */
    PetscInt num_runs;     /* 0: index has no long runs */
    PetscInt *runs;        /* [num_runs + 1] first element of index in each run; the end */
};

PetscErrorCode places_init(struct places *places, PetscInt count, const PetscInt index[]);
PetscErrorCode places_free(struct places *places);
struct places places_packed(PetscInt count);

static inline PetscInt place_of(const struct places *places, PetscInt i)
{
    return places->index ? places->index[i] : places->first + i;
}

#endif
