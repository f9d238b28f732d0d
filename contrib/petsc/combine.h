/* SPDX-License-Identifier: BSD-3-Clause */
/* combine.h - the element types on which operations of MPI are done here, and how. */
#ifndef EPX_PETSC_COMBINE_H
#define EPX_PETSC_COMBINE_H

#include "places.h"

/* Units go from places of source to places of target. */
struct move {
    const struct places *from, *to; /* of the same count */
    const void *source;
    void *target;
    void *fetched;  /* a fetch stores here, at from, what target held; else NULL */
    PetscInt width; /* elements a unit; a copy: bytes a unit */
};

/* What a unit is made of; the operations of MPI that basic stars do on them element by element */
enum element {
    ELEMENT_BYTE, /* unknown to PETSc: copies alone */
    ELEMENT_REAL,
    ELEMENT_COMPLEX,
    ELEMENT_PETSC_INT,
    ELEMENT_INT,
    ELEMENT_SIGNED_CHAR,
    ELEMENT_UNSIGNED_CHAR,
    ELEMENT_INT_PAIR,
    ELEMENT_PETSC_INT_PAIR,
    NUM_ELEMENTS
};

typedef void combine_function(const struct move *move);

combine_function copy_units;
combine_function *find_combine(enum element element, MPI_Op op); /* NULL: MPI itself must do it */
combine_function *find_fetch_and_add(enum element element);      /* NULL: not for these elements */

#endif
