/* SPDX-License-Identifier: BSD-3-Clause */
/* places.c - finds out whether indices follow each other, all of them or in long runs. */
#include "places.h"

/* Shorter runs are moved unit by unit. */
#define LEAST_MEAN_RUN 4

static PetscInt count_runs(PetscInt count, const PetscInt index[])
{
    PetscInt num = count > 0;

    for (PetscInt i = 1; i < count; i++)
        num += index[i] != index[i - 1] + 1;
    return num;
}

static PetscErrorCode note_runs(struct places *places, PetscInt num)
{
    PetscInt run = 0;

    PetscFunctionBegin;
    PetscCall(PetscMalloc1(num + 1, &places->runs));
    for (PetscInt i = 0; i < places->count; i++)
        if (i == 0 || places->index[i] != places->index[i - 1] + 1)
            places->runs[run++] = i;
    places->runs[run] = places->count;
    places->num_runs = num;
    PetscFunctionReturn(0);
}

/* Keeps index, which must last as long as places. */
PetscErrorCode places_init(struct places *places, PetscInt count, const PetscInt index[])
{
    const PetscInt num = count_runs(count, index);

    PetscFunctionBegin;
    *places = places_packed(count);
    if (num == 1)
        places->first = index[0];
    if (num > 1)
        places->index = index;
    if (num > 1 && num <= count / LEAST_MEAN_RUN)
        PetscCall(note_runs(places, num));
    PetscFunctionReturn(0);
}

PetscErrorCode places_free(struct places *places)
{
    PetscFunctionBegin;
    PetscCall(PetscFree(places->runs));
    *places = places_packed(0);
    PetscFunctionReturn(0);
}

/* The places in a buffer of so many units. */
struct places places_packed(PetscInt count)
{
    return (struct places){.count = count};
}
