/* SPDX-License-Identifier: BSD-3-Clause */
/* star.h - what a star forest of type epx has in its member data. */
#ifndef EPX_PETSC_STAR_H
#define EPX_PETSC_STAR_H

#include "exchange.h"
#include "unit.h"

enum scope {
    LOCAL,  /* edges between a rank and itself */
    REMOTE, /* edges to other ranks */
};

/* An exchange and the operation that has it, if any. */
struct link {
    struct link *next;
    struct exchange exchange;
    const struct unit *unit; /* NULL: not in use */
    const void *rootdata, *leafdata;
    unsigned long started; /* when, counted in operations of the star */
};

struct star {
    PetscMPIInt num_leaf_ranks;        /* ranks that have leaves of this rank's roots */
    PetscMPIInt *leaf_ranks;           /* this rank first if it is one, the others ascend */
    PetscInt *root_offsets;            /* [num_leaf_ranks + 1] in root_indices */
    PetscInt *root_indices;            /* the roots of each of these ranks */
    struct places roots[2], leaves[2]; /* by scope */
    struct wiring wiring;
    struct unit *units;
    struct link *links; /* in the order in which they were made, the same on all ranks */
    unsigned long num_operations;
};

PetscErrorCode star_set_up(PetscSF sf);
PetscErrorCode star_reset(PetscSF sf);

PetscErrorCode link_take(PetscSF sf, MPI_Datatype type, const void *rootdata, const void *leafdata,
                         struct link **link);
PetscErrorCode link_find(PetscSF sf, MPI_Datatype type, const void *rootdata, const void *leafdata,
                         struct link **link);
void link_give_back(struct link *link);
PetscErrorCode links_free(struct star *star);

/* Members of PETSc's table of operations */
PetscErrorCode star_bcast_begin(PetscSF sf, MPI_Datatype type, PetscMemType root_memory,
                                const void *rootdata, PetscMemType leaf_memory, void *leafdata,
                                MPI_Op op);
PetscErrorCode star_bcast_end(PetscSF sf, MPI_Datatype type, const void *rootdata, void *leafdata,
                              MPI_Op op);
PetscErrorCode star_reduce_begin(PetscSF sf, MPI_Datatype type, PetscMemType leaf_memory,
                                 const void *leafdata, PetscMemType root_memory, void *rootdata,
                                 MPI_Op op);
PetscErrorCode star_reduce_end(PetscSF sf, MPI_Datatype type, const void *leafdata, void *rootdata,
                               MPI_Op op);
PetscErrorCode star_fetch_begin(PetscSF sf, MPI_Datatype type, PetscMemType root_memory,
                                void *rootdata, PetscMemType leaf_memory, const void *leafdata,
                                void *leafupdate, MPI_Op op);
PetscErrorCode star_fetch_end(PetscSF sf, MPI_Datatype type, void *rootdata, const void *leafdata,
                              void *leafupdate, MPI_Op op);
PetscErrorCode star_embed_roots(PetscSF sf, PetscInt num_selected, const PetscInt selected[],
                                PetscSF *embedded);

#endif
