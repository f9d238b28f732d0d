/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.h - moves packed units between neighbours, by persistent operations of EPX. Nothing else
   of the plug-in calls an exchange of EPX. */
#ifndef EPX_PETSC_EXCHANGE_H
#define EPX_PETSC_EXCHANGE_H

#include <petsc/private/sfimpl.h>

#include "communicator.h"

/* Other ranks, and which units in a buffer are theirs: rank ranks[i] has the units from offsets[i]
   to offsets[i + 1], counted from offsets[0]. */
struct side {
    PetscInt num_ranks;
    const PetscMPIInt *ranks; /* ascending */
    const PetscInt *offsets;  /* [num_ranks + 1] */
};

/* Who exchanges with whom; the same for all exchanges of a star. */
struct wiring {
    EPX_Comm comm;       /* EPX_COMM_NULL: a rank alone */
    EPX_Graph graphs[2]; /* by PetscSFDirection; made by the first exchange in that direction */
    struct side roots;   /* ranks that have leaves of this rank's roots */
    struct side leaves;  /* ranks that have roots of this rank's leaves */
};

/* Buffers for units of one length, and a request for each direction; made when first started. */
struct exchange {
    size_t unit_bytes;
    char *roots;             /* packed units that go to leaves, or have come from them */
    char *leaves;            /* packed units that go to roots, or have come from them */
    EPX_Request requests[2]; /* by PetscSFDirection */
    int64_t *arrivals[2];    /* counts and displacements of the ranks, which EPX writes */
};

/* Collective, as is a start: all ranks make them in one order. */
PetscErrorCode exchange_init(struct exchange *exchange, const struct wiring *wiring,
                             size_t unit_bytes);
PetscErrorCode exchange_free(struct exchange *exchange, const struct wiring *wiring);
PetscErrorCode exchange_start(struct exchange *exchange, struct wiring *wiring,
                              PetscSFDirection direction);
PetscErrorCode exchange_wait(struct exchange *exchange, PetscSFDirection direction);
PetscErrorCode wiring_free(struct wiring *wiring); /* collective, after its exchanges */

static inline PetscInt side_units(const struct side *side)
{
    return side->offsets[side->num_ranks] - side->offsets[0];
}

#endif
