/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - an exchange is a persistent EPX_Alltoallv with fixed counts. */
#include "exchange.h"

/* Where leaves begin in the memory of both buffers. */
#define ALIGNMENT 128

static size_t padded_bytes(const struct side *side, size_t unit_bytes)
{
    return (side_units(side) * unit_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Both buffers lie in memory that other ranks store into: so arriving units are copied once. */
PetscErrorCode exchange_init(struct exchange *exchange, const struct wiring *wiring,
                             size_t unit_bytes)
{
    const size_t root_bytes = wiring->comm ? padded_bytes(&wiring->roots, unit_bytes) : 0;
    const size_t leaf_bytes = wiring->comm ? padded_bytes(&wiring->leaves, unit_bytes) : 0;

    PetscFunctionBegin;
    exchange->unit_bytes = unit_bytes;
    if (wiring->comm)
        PetscCallEPX(EPX_Alloc_mem(root_bytes + leaf_bytes, wiring->comm, &exchange->roots));
    if (exchange->roots)
        exchange->leaves = exchange->roots + root_bytes;
    PetscFunctionReturn(0);
}

PetscErrorCode exchange_free(struct exchange *exchange, const struct wiring *wiring)
{
    PetscFunctionBegin;
    for (int i = 0; i < 2; i++) {
        if (exchange->requests[i])
            PetscCallEPX(EPX_Request_free(&exchange->requests[i]));
        PetscCall(PetscFree(exchange->arrivals[i]));
    }
    if (exchange->roots)
        PetscCallEPX(EPX_Free_mem(exchange->roots, wiring->comm));
    exchange->roots = NULL;
    PetscFunctionReturn(0);
}

static void spread(const struct side *side, int64_t counts[], int64_t displs[])
{
    for (PetscInt i = 0; i < side->num_ranks; i++) {
        counts[side->ranks[i]] = side->offsets[i + 1] - side->offsets[i];
        displs[side->ranks[i]] = side->offsets[i] - side->offsets[0];
    }
}

/* Ranks ascend on both sides: so units arrive packed by rank, as the offsets say. */
static PetscErrorCode make_request(struct exchange *exchange, const struct wiring *wiring,
                                   PetscSFDirection direction)
{
    const PetscBool down = (PetscBool)(direction == PETSCSF_ROOT2LEAF);
    const struct side *const from = down ? &wiring->roots : &wiring->leaves;
    const struct side *const to = down ? &wiring->leaves : &wiring->roots;
    char *const sent = down ? exchange->roots : exchange->leaves;
    char *const arrived = down ? exchange->leaves : exchange->roots;
    const PetscMPIInt num_ranks = wiring->num_ranks;
    int64_t *counts, *displs;

    PetscFunctionBegin;
    PetscCall(PetscCalloc2(num_ranks, &counts, num_ranks, &displs));
    PetscCall(PetscMalloc1(2 * num_ranks, &exchange->arrivals[direction]));
    spread(from, counts, displs);
    PetscCallEPX(EPX_Alltoallv_init(
        sent, counts, displs, arrived, exchange->arrivals[direction],
        exchange->arrivals[direction] + num_ranks, side_units(to), (int)exchange->unit_bytes,
        EPX_BYTE, wiring->comm, EPX_STREAM_NULL, EPX_FIXED_COUNTS, &exchange->requests[direction]));
    PetscCall(PetscFree2(counts, displs));
    PetscFunctionReturn(0);
}

PetscErrorCode exchange_start(struct exchange *exchange, const struct wiring *wiring,
                              PetscSFDirection direction)
{
    PetscFunctionBegin;
    if (wiring->comm && !exchange->requests[direction])
        PetscCall(make_request(exchange, wiring, direction));
    if (exchange->requests[direction])
        PetscCallEPX(EPX_Start(&exchange->requests[direction]));
    PetscFunctionReturn(0);
}

PetscErrorCode exchange_wait(struct exchange *exchange, PetscSFDirection direction)
{
    PetscFunctionBegin;
    if (exchange->requests[direction])
        PetscCallEPX(EPX_Wait(&exchange->requests[direction], MPI_STATUS_IGNORE));
    PetscFunctionReturn(0);
}
