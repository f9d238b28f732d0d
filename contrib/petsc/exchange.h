/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.h - moves packed units between ranks, by persistent operations of EPX: the only part of
   the plug-in that calls an exchange of EPX. */
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
    EPX_Comm comm; /* EPX_COMM_NULL: a rank alone */
    PetscMPIInt num_ranks;
    struct side roots;  /* ranks that have leaves of this rank's roots */
    struct side leaves; /* ranks that have roots of this rank's leaves */
};

/* Buffers for units of one length, and a request for each direction; made when first started. */
struct exchange {
    size_t unit_bytes;
    char *roots;             /* packed units that go to leaves, or have come from them */
    char *leaves;            /* packed units that go to roots, or have come from them */
    EPX_Request requests[2]; /* by PetscSFDirection */
    int64_t *arrivals[2];    /* [2 * num_ranks] counts and displacements, which EPX writes */
};

/* Collective, as is a start: all ranks make them in one order. */
PetscErrorCode exchange_init(struct exchange *exchange, const struct wiring *wiring,
                             size_t unit_bytes);
PetscErrorCode exchange_free(struct exchange *exchange, const struct wiring *wiring);
PetscErrorCode exchange_start(struct exchange *exchange, const struct wiring *wiring,
                              PetscSFDirection direction);
PetscErrorCode exchange_wait(struct exchange *exchange, PetscSFDirection direction);

static inline PetscInt side_units(const struct side *side)
{
    return side->offsets[side->num_ranks] - side->offsets[0];
}

#endif
