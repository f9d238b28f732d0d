/* SPDX-License-Identifier: BSD-3-Clause */
/* unit.h - the MPI datatype of one unit: how long it is, how it is copied and combined. */
#ifndef EPX_PETSC_UNIT_H
#define EPX_PETSC_UNIT_H

#include "combine.h"

struct unit {
    struct unit *next;
    MPI_Datatype type;  /* the caller's, if MPI has it built in, else a duplicate */
    PetscBool built_in; /* type is not to be freed */
    size_t bytes;
    enum element element;
    PetscInt width; /* elements; bytes where element is ELEMENT_BYTE */
};

/* Finds the unit of type in a list, to which it adds one if there is none. */
PetscErrorCode unit_of(MPI_Datatype type, struct unit **list, struct unit **unit);
PetscErrorCode units_free(struct unit **list);

/* move has from, to, source and target; fetched for the fetch. */
PetscErrorCode unit_copy(const struct unit *unit, struct move move);
PetscErrorCode unit_combine(const struct unit *unit, struct move move, MPI_Op op);
PetscErrorCode unit_fetch(const struct unit *unit, struct move move, MPI_Op op);

#endif
