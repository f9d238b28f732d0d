/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hier.c - areas of shared memory inside a node, beside the stages for messages between nodes.
 *
 * In every round each rank fills its own area, and reads the areas of all ranks of its node. In a
 * rank's part of the window:
 *
 *   area             writer the owner, and MPI or UCX for it; readers the ranks of the node.
 *   home_at, row     writer the owner: where each home's rows lie in the area, the first of them.
 *   filled           writer the owner: n, released after area and tables of round n are complete.
 *                    A reader acquires filled >= n before it reads them.
 *   taken            writer the owner: n, released after its last read of any area in round n.
 *                    A rank acquires taken >= n - 1 of all ranks of its node before it writes
 *                    anything of round n, or lets a message arrive there.
 *
 * Rounds are counted since the communicator was made, never reset, and compared with >=. All ranks
 * count the same rounds: a block of a dispatch or combine is one, and their number follows from the
 * count matrix and the ready words, which all have.
 *
 * Invariant: taken <= filled <= taken + 1 for every rank, and no rank fills n before all of its
 * node took n - 1; so an area is never written while it is read, and one area is enough.
 *
 * No cycle: to fill n a rank waits for nobody's n, but in a dispatch for the messages of the homes
 * it serves, and these send them before they wait for anything of n; to take n it waits for what
 * is filled, and in a combine for messages of relays that wait for what is filled alone. So the
 * rank that is furthest behind can always go on.
 *
 * tests/model/hier.pml checks this.
 */
#include "coll/hier/hier.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/flags.h"
#include "base/jitter.h"
#include "core/agree.h"
#include "transport/shm/node_window.h"

struct part {
    _Alignas(EPX_LINE_BYTES) _Atomic uint64_t filled;
    _Alignas(EPX_LINE_BYTES) _Atomic uint64_t taken;
    _Alignas(EPX_LINE_BYTES) int64_t tables[]; /* [2][R] home_at, row; then the area */
};

static struct part *part_of(const struct epx_hier *hier, int rank)
{
    return (struct part *)(void *)hier->window->address[rank];
}

static size_t area_offset(int num_ranks)
{
    size_t bytes = sizeof(struct part) + 2 * (size_t)num_ranks * sizeof(int64_t);

    return (size_t)epx_round_up((int64_t)bytes, EPX_LINE_BYTES);
}

static int shares_a_node(const struct epx_comm *comm)
{
    for (int r = 0; r < comm->size; r++)
        for (int other = r + 1; other < comm->size; other++)
            if (comm->node[r] == comm->node[other])
                return 1;
    return 0;
}

int epx_hier_usable(const struct epx_comm *comm, char *why)
{
    const char *reason = NULL;

    if (!comm->nodes_share_memory)
        reason = "a node of epx_ranks_per_node spans several real ones";
    else if (!comm->params.transport && comm->num_nodes == 1)
        reason = "all ranks are on one node";
    else if (!comm->params.transport && !shares_a_node(comm))
        reason = "no two ranks share a node";
    if (reason)
        snprintf(why, EPX_WHY_MAX, "%s", reason);
    return !reason;
}

static int init(struct epx_hier *hier)
{
    struct epx_arrays *all = &hier->arrays;
    int64_t ranks = hier->comm->size;

    EPX_ARRAY(all, hier->node_rows, 2 * ranks);
    EPX_ARRAY(all, hier->node_at, 4 * ranks);
    EPX_ARRAY(all, hier->part_at, ranks);
    EPX_ARRAY(all, hier->home_displs, 2 * ranks);
    EPX_ARRAY(all, hier->areas, 2 * ranks);
    EPX_ARRAY(all, hier->tables, 2 * ranks);
    EPX_FAIL_IF(all->failed, EPX_ERR_NO_MEM, "no memory for %d ranks", hier->comm->size);
    return EPX_SUCCESS;
}

/* Arrays of one element a rank or node, cut from few allocations. */
static void place_arrays(struct epx_hier *hier)
{
    struct epx_node_block *block = &hier->block;
    int ranks = hier->comm->size;

    hier->relay_displs = hier->home_displs + ranks;
    hier->parts = hier->areas + ranks;
    block->tokens = &hier->staged->block;
    block->home_row = hier->node_rows;
    block->home_rows = hier->node_rows + ranks;
    block->home_at = hier->node_at;
    block->entry = hier->node_at + ranks;
    block->entry_rows = hier->node_at + 2 * ranks;
    block->entry_at = hier->node_at + 3 * ranks;
    block->home_stage = hier->staged->home_stage;
    block->relay_stage = hier->staged->expert_stage;
    block->area = hier->areas;
    block->area_at = hier->tables;
    block->area_row = hier->tables + ranks;
    for (int r = 0; r < ranks; r++) {
        if (!hier->window->address[r])
            continue;
        block->area[r] = hier->window->address[r] + area_offset(ranks);
        block->area_at[r] = part_of(hier, r)->tables;
        block->area_row[r] = part_of(hier, r)->tables + ranks;
    }
}

int epx_hier_create(struct epx_transport *transport)
{
    struct epx_comm *comm = transport->comm;
    struct epx_hier *hier;
    size_t bytes;
    int rc;

    EPX_TRY(epx_staged_create(transport, 1));
    hier = epx_memory_zeroed(1, sizeof(*hier));
    rc = hier ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for the hierarchical algorithms");
    transport->hier = hier;
    if (hier) {
        hier->comm = comm;
        hier->staged = transport->staged;
        rc = init(hier);
    }
    EPX_TRY(epx_comm_agree(comm, rc));
    bytes = area_offset(comm->size) + (size_t)hier->staged->stage_bytes;
    EPX_TRY(epx_node_window_create(comm, bytes, &hier->window));
    place_arrays(hier);
    return EPX_SUCCESS;
}

static void free_hier(struct epx_hier *hier)
{
    if (!hier)
        return;
    epx_node_window_free(hier->comm, hier->window);
    epx_arrays_free(&hier->arrays);
    free(hier);
}

void epx_hier_free(struct epx_transport *transport)
{
    free_hier(transport->hier);
    transport->hier = NULL;
    epx_staged_free(transport);
}

struct epx_hier *epx_hier_of(const struct epx_request *request)
{
    return epx_transport_of(request)->hier;
}

char *epx_hier_area(const struct epx_hier *hier)
{
    return hier->block.area[hier->comm->rank];
}

/* The first rank of the node, from this one on, that took or filled less than value; or -1. */
static int lacks(const struct epx_hier *hier, int taken, uint64_t value)
{
    int size = hier->comm->size;

    for (int i = 0, r = hier->comm->rank; i < size; i++, r = (r + 1) % size) {
        if (!hier->window->address[r])
            continue;
        if (epx_flag_look(taken ? &part_of(hier, r)->taken : &part_of(hier, r)->filled) < value)
            return r;
    }
    return -1;
}

int epx_hier_may_fill(const struct epx_hier *hier, struct epx_request *request)
{
    request->waiting_for = lacks(hier, 1, hier->round);
    return request->waiting_for < 0;
}

int epx_hier_all_filled(struct epx_request *request, int *moved)
{
    const struct epx_hier *hier = epx_hier_of(request);

    request->waiting_for = lacks(hier, 0, hier->round);
    *moved |= request->waiting_for < 0;
    return EPX_SUCCESS;
}

void epx_hier_post_filled(struct epx_hier *hier, const int64_t *home_at)
{
    struct part *own = part_of(hier, hier->comm->rank);
    size_t ranks = (size_t)hier->comm->size;

    memcpy(own->tables, home_at, ranks * sizeof(*home_at));
    memcpy(own->tables + ranks, hier->block.entry, ranks * sizeof(*hier->block.entry));
    epx_flag_post(&own->filled, hier->round);
}

void epx_hier_post_taken(struct epx_hier *hier)
{
    epx_flag_post(&part_of(hier, hier->comm->rank)->taken, hier->round);
}

int epx_hier_to_relays(struct epx_hier *hier)
{
    return epx_staged_exchange(hier->staged, EPX_TO_EXPERTS, epx_hier_area(hier), hier->home_displs,
                               hier->relay_displs);
}

int epx_hier_to_homes(struct epx_hier *hier)
{
    struct epx_staged *staged = hier->staged;

    epx_poison(staged->home_stage, (size_t)staged->stage_bytes);
    return epx_staged_exchange(staged, EPX_TO_HOMES, staged->expert_stage, hier->home_displs,
                               hier->relay_displs);
}
