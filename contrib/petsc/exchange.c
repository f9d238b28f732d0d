/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - an exchange is a persistent EPX_Neighbor_alltoallv with fixed counts. */
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

static const struct side *senders(const struct wiring *wiring, PetscSFDirection direction)
{
    return direction == PETSCSF_ROOT2LEAF ? &wiring->leaves : &wiring->roots;
}

static const struct side *receivers(const struct wiring *wiring, PetscSFDirection direction)
{
    return direction == PETSCSF_ROOT2LEAF ? &wiring->roots : &wiring->leaves;
}

static PetscErrorCode make_graph(struct wiring *wiring, PetscSFDirection direction)
{
    const struct side *const from = senders(wiring, direction);
    const struct side *const to = receivers(wiring, direction);

    PetscFunctionBegin;
    PetscCallEPX(EPX_Graph_create_adjacent(wiring->comm, (int)from->num_ranks, from->ranks,
                                           (int)to->num_ranks, to->ranks,
                                           &wiring->graphs[direction]));
    PetscFunctionReturn(0);
}

PetscErrorCode wiring_free(struct wiring *wiring)
{
    PetscFunctionBegin;
    for (int i = 0; i < 2; i++)
        if (wiring->graphs[i])
            PetscCallEPX(EPX_Graph_free(&wiring->graphs[i]));
    PetscCall(PetscMemzero(wiring, sizeof(*wiring)));
    PetscFunctionReturn(0);
}

/* Units for a rank lie in the buffer as the offsets of the side say, and those of a rank arrive so,
   since both are in the order of the ranks of the graph. */
static PetscErrorCode make_request(struct exchange *exchange, const struct wiring *wiring,
                                   PetscSFDirection direction)
{
    const struct side *const from = senders(wiring, direction);
    const struct side *const to = receivers(wiring, direction);
    char *const sent = direction == PETSCSF_ROOT2LEAF ? exchange->roots : exchange->leaves;
    char *const arrived = direction == PETSCSF_ROOT2LEAF ? exchange->leaves : exchange->roots;
    int64_t *counts, *displs, *arrivals;

    PetscFunctionBegin;
    PetscCall(PetscMalloc2(to->num_ranks + 1, &counts, to->num_ranks + 1, &displs));
    for (PetscInt i = 0; i < to->num_ranks; i++) {
        counts[i] = to->offsets[i + 1] - to->offsets[i];
        displs[i] = to->offsets[i] - to->offsets[0];
    }
    PetscCall(PetscMalloc1(2 * from->num_ranks + 1, &arrivals));
    exchange->arrivals[direction] = arrivals;
    PetscCallEPX(EPX_Neighbor_alltoallv_init(
        sent, counts, displs, arrived, arrivals, arrivals + from->num_ranks, side_units(from),
        (int)exchange->unit_bytes, EPX_BYTE, wiring->graphs[direction], EPX_STREAM_NULL,
        EPX_FIXED_COUNTS, &exchange->requests[direction]));
    PetscCall(PetscFree2(counts, displs));
    PetscFunctionReturn(0);
}

PetscErrorCode exchange_start(struct exchange *exchange, struct wiring *wiring,
                              PetscSFDirection direction)
{
    PetscFunctionBegin;
    if (wiring->comm && !wiring->graphs[direction])
        PetscCall(make_graph(wiring, direction));
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
