/* SPDX-License-Identifier: BSD-3-Clause */
/* star_operations.c - broadcast, reduce, and fetch-and-op: the local part of each is done when it
   begins, what came from other ranks is unpacked when it ends, in the order of the ranks. */
#include "star.h"

static PetscErrorCode check_memory(PetscMemType roots, PetscMemType leaves)
{
    PetscFunctionBegin;
    PetscCheck(PetscMemTypeHost(roots) && PetscMemTypeHost(leaves), PETSC_COMM_SELF, PETSC_ERR_SUP,
               "Stars of type epx take data in host memory only");
    PetscFunctionReturn(0);
}

/* Packs the units for other ranks, and starts the exchange. */
static PetscErrorCode send(struct star *star, struct link *link, PetscSFDirection direction,
                           const void *data)
{
    const PetscBool down = (PetscBool)(direction == PETSCSF_ROOT2LEAF);
    const struct places *const places = down ? &star->roots[REMOTE] : &star->leaves[REMOTE];
    const struct places packed = places_packed(places->count);

    PetscFunctionBegin;
    PetscCall(PetscLogEventBegin(PETSCSF_Pack, 0, 0, 0, 0));
    PetscCall(
        unit_copy(link->unit, (struct move){
                                  .from = places,
                                  .to = &packed,
                                  .source = data,
                                  .target = down ? link->exchange.roots : link->exchange.leaves,
                              }));
    PetscCall(PetscLogEventEnd(PETSCSF_Pack, 0, 0, 0, 0));
    PetscCall(exchange_start(&link->exchange, &star->wiring, direction));
    PetscFunctionReturn(0);
}

static PetscErrorCode log_flops(const struct unit *unit, PetscInt count, MPI_Op op)
{
    const enum element scalar = PetscDefined(USE_COMPLEX) ? ELEMENT_COMPLEX : ELEMENT_REAL;

    PetscFunctionBegin;
    if (op != MPI_REPLACE && unit->element == scalar)
        PetscCall(PetscLogFlops((PetscLogDouble)count * unit->width));
    PetscFunctionReturn(0);
}

/* Unpacks what has arrived from other ranks. */
static PetscErrorCode unpack(const struct star *star, const struct link *link,
                             PetscSFDirection direction, void *data, MPI_Op op)
{
    const PetscBool down = (PetscBool)(direction == PETSCSF_ROOT2LEAF);
    const struct places *const places = down ? &star->leaves[REMOTE] : &star->roots[REMOTE];
    const struct places packed = places_packed(places->count);
    const struct move move = {
        .from = &packed,
        .to = places,
        .source = down ? link->exchange.leaves : link->exchange.roots,
        .target = data,
    };

    PetscFunctionBegin;
    PetscCall(PetscLogEventBegin(PETSCSF_Unpack, 0, 0, 0, 0));
    PetscCall(unit_combine(link->unit, move, op));
    PetscCall(log_flops(link->unit, places->count, op));
    PetscCall(PetscLogEventEnd(PETSCSF_Unpack, 0, 0, 0, 0));
    PetscFunctionReturn(0);
}

PetscErrorCode star_bcast_begin(PetscSF sf, MPI_Datatype type, PetscMemType root_memory,
                                const void *rootdata, PetscMemType leaf_memory, void *leafdata,
                                MPI_Op op)
{
    struct star *const star = sf->data;
    struct link *link;

    PetscFunctionBegin;
    PetscCall(check_memory(root_memory, leaf_memory));
    PetscCall(link_take(sf, type, rootdata, leafdata, &link));
    PetscCall(send(star, link, PETSCSF_ROOT2LEAF, rootdata));
    PetscCall(unit_combine(link->unit,
                           (struct move){.from = &star->roots[LOCAL],
                                         .to = &star->leaves[LOCAL],
                                         .source = rootdata,
                                         .target = leafdata},
                           op));
    PetscFunctionReturn(0);
}

PetscErrorCode star_bcast_end(PetscSF sf, MPI_Datatype type, const void *rootdata, void *leafdata,
                              MPI_Op op)
{
    struct link *link;

    PetscFunctionBegin;
    PetscCall(link_find(sf, type, rootdata, leafdata, &link));
    PetscCall(exchange_wait(&link->exchange, PETSCSF_ROOT2LEAF));
    PetscCall(unpack(sf->data, link, PETSCSF_ROOT2LEAF, leafdata, op));
    link_give_back(link);
    PetscFunctionReturn(0);
}

PetscErrorCode star_reduce_begin(PetscSF sf, MPI_Datatype type, PetscMemType leaf_memory,
                                 const void *leafdata, PetscMemType root_memory, void *rootdata,
                                 MPI_Op op)
{
    struct star *const star = sf->data;
    struct link *link;

    PetscFunctionBegin;
    PetscCall(check_memory(root_memory, leaf_memory));
    PetscCall(link_take(sf, type, rootdata, leafdata, &link));
    PetscCall(send(star, link, PETSCSF_LEAF2ROOT, leafdata));
    PetscCall(unit_combine(link->unit,
                           (struct move){.from = &star->leaves[LOCAL],
                                         .to = &star->roots[LOCAL],
                                         .source = leafdata,
                                         .target = rootdata},
                           op));
    PetscFunctionReturn(0);
}

PetscErrorCode star_reduce_end(PetscSF sf, MPI_Datatype type, const void *leafdata, void *rootdata,
                               MPI_Op op)
{
    struct link *link;

    PetscFunctionBegin;
    PetscCall(link_find(sf, type, rootdata, leafdata, &link));
    PetscCall(exchange_wait(&link->exchange, PETSCSF_LEAF2ROOT));
    PetscCall(unpack(sf->data, link, PETSCSF_LEAF2ROOT, rootdata, op));
    link_give_back(link);
    PetscFunctionReturn(0);
}

PetscErrorCode star_fetch_begin(PetscSF sf, MPI_Datatype type, PetscMemType root_memory,
                                void *rootdata, PetscMemType leaf_memory, const void *leafdata,
                                void *leafupdate, MPI_Op op)
{
    struct star *const star = sf->data;
    struct link *link;

    PetscFunctionBegin;
    PetscCall(check_memory(root_memory, leaf_memory));
    PetscCall(link_take(sf, type, rootdata, leafdata, &link));
    PetscCall(send(star, link, PETSCSF_LEAF2ROOT, leafdata));
    PetscCall(unit_fetch(link->unit,
                         (struct move){.from = &star->leaves[LOCAL],
                                       .to = &star->roots[LOCAL],
                                       .source = leafdata,
                                       .target = rootdata,
                                       .fetched = leafupdate},
                         op));
    PetscFunctionReturn(0);
}

/* What roots held before goes back in the buffer in which the leaves came. */
static PetscErrorCode fetch_for_others(const struct star *star, const struct link *link,
                                       void *rootdata, MPI_Op op)
{
    const struct places *const places = &star->roots[REMOTE];
    const struct places packed = places_packed(places->count);

    PetscFunctionBegin;
    PetscCall(PetscLogEventBegin(PETSCSF_Unpack, 0, 0, 0, 0));
    PetscCall(unit_fetch(link->unit,
                         (struct move){.from = &packed,
                                       .to = places,
                                       .source = link->exchange.roots,
                                       .target = rootdata,
                                       .fetched = link->exchange.roots},
                         op));
    PetscCall(log_flops(link->unit, places->count, op));
    PetscCall(PetscLogEventEnd(PETSCSF_Unpack, 0, 0, 0, 0));
    PetscFunctionReturn(0);
}

PetscErrorCode star_fetch_end(PetscSF sf, MPI_Datatype type, void *rootdata, const void *leafdata,
                              void *leafupdate, MPI_Op op)
{
    struct star *const star = sf->data;
    struct link *link;

    PetscFunctionBegin;
    PetscCall(link_find(sf, type, rootdata, leafdata, &link));
    PetscCall(exchange_wait(&link->exchange, PETSCSF_LEAF2ROOT));
    PetscCall(fetch_for_others(star, link, rootdata, op));
    PetscCall(exchange_start(&link->exchange, &star->wiring, PETSCSF_ROOT2LEAF));
    PetscCall(exchange_wait(&link->exchange, PETSCSF_ROOT2LEAF));
    PetscCall(unpack(star, link, PETSCSF_ROOT2LEAF, leafupdate, MPI_REPLACE));
    link_give_back(link);
    PetscFunctionReturn(0);
}
