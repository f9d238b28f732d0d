/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * star_link.c - the pool of exchanges of a star: an operation takes one that is free, or makes one.
 *
 * All ranks must take the same one, since a persistent operation of EPX belongs together on all
 * ranks. They do: a rank takes the oldest that is free, and which ones are free follows from the
 * operations that were begun and ended, in an order that is the same on all ranks. A rank without
 * roots and leaves may not know which of several operations a call ends, because all its data may
 * be at NULL: there the one that was begun first ends, and that rank exchanges with nobody.
 */
#include "star.h"

PetscErrorCode link_take(PetscSF sf, MPI_Datatype type, const void *rootdata, const void *leafdata,
                         struct link **link)
{
    struct star *const star = sf->data;
    struct link **next;
    struct unit *unit;

    PetscFunctionBegin;
    PetscCall(unit_of(type, &star->units, &unit));
    for (next = &star->links; *next; next = &(*next)->next)
        if (!(*next)->unit && (*next)->exchange.unit_bytes == unit->bytes)
            break;
    if (!*next) {
        PetscCall(PetscNew(next));
        PetscCall(exchange_init(&(*next)->exchange, &star->wiring, unit->bytes));
    }
    *link = *next;
    (*link)->unit = unit;
    (*link)->rootdata = rootdata;
    (*link)->leafdata = leafdata;
    (*link)->started = ++star->num_operations;
    PetscFunctionReturn(0);
}

PetscErrorCode link_find(PetscSF sf, MPI_Datatype type, const void *rootdata, const void *leafdata,
                         struct link **link)
{
    struct star *const star = sf->data;
    struct unit *unit;

    PetscFunctionBegin;
    PetscCall(unit_of(type, &star->units, &unit));
    *link = NULL;
    for (struct link *one = star->links; one; one = one->next)
        if (one->unit == unit && one->rootdata == rootdata && one->leafdata == leafdata &&
            (!*link || one->started < (*link)->started))
            *link = one;
    PetscCheck(*link, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
               "No operation with this datatype and these data is in flight");
    PetscFunctionReturn(0);
}

void link_give_back(struct link *link)
{
    link->unit = NULL;
}

PetscErrorCode links_free(struct star *star)
{
    PetscFunctionBegin;
    for (const struct link *one = star->links; one; one = one->next)
        PetscCheck(!one->unit, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
                   "An operation on the star was not ended");
    while (star->links) {
        struct link *link = star->links;

        star->links = link->next;
        PetscCall(exchange_free(&link->exchange, &star->wiring));
        PetscCall(PetscFree(link));
    }
    PetscFunctionReturn(0);
}
