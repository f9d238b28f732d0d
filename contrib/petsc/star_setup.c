/* SPDX-License-Identifier: BSD-3-Clause */
/* star_setup.c - tells roots which ranks have their leaves, and notes where the units lie. */
#include "star.h"

/* Edges between a rank and itself come first on both sides, and agree. */
static PetscErrorCode set_up_root_ranks(PetscSF sf)
{
    MPI_Group self;

    PetscFunctionBegin;
    PetscCallMPI(MPI_Comm_group(PETSC_COMM_SELF, &self));
    PetscCall(PetscSFSetUpRanks(sf, self));
    PetscCallMPI(MPI_Group_free(&self));
    PetscFunctionReturn(0);
}

static PetscErrorCode make_arrays(PetscSF sf, struct star *star, PetscMPIInt num,
                                  const PetscMPIInt ranks[], const PetscInt counts[])
{
    const PetscInt own = sf->ndranks; /* 1 if this rank has edges to itself, else 0 */

    PetscFunctionBegin;
    star->num_leaf_ranks = own + num;
    PetscCall(PetscMalloc2(own + num, &star->leaf_ranks, own + num + 1, &star->root_offsets));
    star->root_offsets[0] = 0;
    if (own) {
        star->leaf_ranks[0] = sf->ranks[0];
        star->root_offsets[1] = sf->roffset[1];
    }
    for (PetscMPIInt i = 0; i < num; i++) {
        star->leaf_ranks[own + i] = ranks[i];
        star->root_offsets[own + i + 1] = star->root_offsets[own + i] + counts[i];
    }
    PetscCall(PetscMalloc1(star->root_offsets[own + num], &star->root_indices));
    PetscFunctionReturn(0);
}

/* Each rank tells the owners of its roots how many leaves it has there. */
static PetscErrorCode find_leaf_ranks(PetscSF sf, struct star *star)
{
    const PetscInt own = sf->ndranks, num_remote = sf->nranks - own;
    PetscMPIInt num, *ranks;
    PetscInt *counts, *told;

    PetscFunctionBegin;
    PetscCall(PetscMalloc1(num_remote, &told));
    for (PetscInt i = 0; i < num_remote; i++)
        told[i] = sf->roffset[own + i + 1] - sf->roffset[own + i];
    PetscCall(PetscCommBuildTwoSided(PetscObjectComm((PetscObject)sf), 1, MPIU_INT, num_remote,
                                     sf->ranks + own, told, &num, &ranks, (void **)&counts));
    PetscCall(PetscSortMPIIntWithIntArray(num, ranks, counts));
    PetscCall(make_arrays(sf, star, num, ranks, counts));
    PetscCall(PetscFree(told));
    PetscCall(PetscFree(ranks));
    PetscCall(PetscFree(counts));
    PetscFunctionReturn(0);
}

/* Sends or receives the indices of side i, according to call. */
#define MOVE_INDICES(call, indices, offsets, ranks, i)                                             \
    do {                                                                                           \
        PetscMPIInt num_;                                                                          \
        PetscCall(PetscMPIIntCast((offsets)[(i) + 1] - (offsets)[i], &num_));                      \
        PetscCallMPI(call((indices) + (offsets)[i], num_, MPIU_INT, (ranks)[i], tag, comm,         \
                          &requests[num_requests++]));                                             \
    } while (0)

static PetscErrorCode tell_root_indices(PetscSF sf, struct star *star)
{
    const MPI_Comm comm = PetscObjectComm((PetscObject)sf);
    const PetscInt own = sf->ndranks;
    MPI_Request *requests;
    PetscMPIInt tag, num_requests = 0;

    PetscFunctionBegin;
    PetscCall(PetscObjectGetNewTag((PetscObject)sf, &tag));
    PetscCall(PetscMalloc1(star->num_leaf_ranks + sf->nranks, &requests));
    for (PetscInt i = own; i < star->num_leaf_ranks; i++)
        MOVE_INDICES(MPI_Irecv, star->root_indices, star->root_offsets, star->leaf_ranks, i);
    for (PetscInt i = own; i < sf->nranks; i++)
        MOVE_INDICES(MPI_Isend, sf->rremote, sf->roffset, sf->ranks, i);
    PetscCall(PetscArraycpy(star->root_indices, sf->rremote, own ? sf->roffset[1] : 0));
    PetscCallMPI(MPI_Waitall(num_requests, requests, MPI_STATUSES_IGNORE));
    PetscCall(PetscFree(requests));
    PetscFunctionReturn(0);
}

static PetscErrorCode note_places(struct places places[2], PetscInt num_own, PetscInt num,
                                  const PetscInt indices[])
{
    PetscFunctionBegin;
    PetscCall(places_init(&places[LOCAL], num_own, indices));
    PetscCall(places_init(&places[REMOTE], num - num_own, indices + num_own));
    PetscFunctionReturn(0);
}

/* A rank alone needs no communicator of EPX. */
static PetscErrorCode wire(PetscSF sf, struct star *star)
{
    const MPI_Comm comm = PetscObjectComm((PetscObject)sf);
    const PetscInt own = sf->ndranks;
    struct wiring *const wiring = &star->wiring;
    PetscMPIInt size;

    PetscFunctionBegin;
    PetscCallMPI(MPI_Comm_size(comm, &size));
    wiring->roots.num_ranks = star->num_leaf_ranks - own;
    wiring->roots.ranks = star->leaf_ranks + own;
    wiring->roots.offsets = star->root_offsets + own;
    wiring->leaves.num_ranks = sf->nranks - own;
    wiring->leaves.ranks = sf->ranks + own;
    wiring->leaves.offsets = sf->roffset + own;
    if (size > 1)
        PetscCall(communicator_of(comm, &wiring->comm));
    PetscFunctionReturn(0);
}

PetscErrorCode star_set_up(PetscSF sf)
{
    struct star *const star = sf->data;

    PetscFunctionBegin;
    PetscCheck(sf->remote || !sf->nleaves, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "PETSc has no list of edges of a graph with a pattern, and of a scatter that was "
               "remapped: such a star cannot become one of type epx");
    PetscCall(set_up_root_ranks(sf));
    PetscCall(find_leaf_ranks(sf, star));
    PetscCall(tell_root_indices(sf, star));
    PetscCall(note_places(star->roots, star->root_offsets[sf->ndranks],
                          star->root_offsets[star->num_leaf_ranks], star->root_indices));
    PetscCall(
        note_places(star->leaves, sf->roffset[sf->ndranks], sf->roffset[sf->nranks], sf->rmine));
    PetscCall(wire(sf, star));
    PetscFunctionReturn(0);
}

PetscErrorCode star_reset(PetscSF sf)
{
    struct star *const star = sf->data;

    PetscFunctionBegin;
    PetscCall(links_free(star));
    PetscCall(units_free(&star->units));
    for (int scope = LOCAL; scope <= REMOTE; scope++) {
        PetscCall(places_free(&star->roots[scope]));
        PetscCall(places_free(&star->leaves[scope]));
    }
    PetscCall(PetscFree2(star->leaf_ranks, star->root_offsets));
    PetscCall(PetscFree(star->root_indices));
    PetscCall(wiring_free(&star->wiring));
    PetscFunctionReturn(0);
}
