/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tiers.c - areas of shared memory inside a node, beside the stages for messages between nodes.
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
 */
#include "coll/tiers.h"

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

static struct part *part_of(const struct epx_tiers *tiers, int rank)
{
    return (struct part *)(void *)tiers->window->address[rank];
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

int epx_tiers_usable(const struct epx_comm *comm, char *why)
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

static int init(struct epx_tiers *tiers)
{
    size_t ranks = (size_t)tiers->comm->size;

    tiers->node_rows = epx_memory_zeroed(2 * ranks, sizeof(*tiers->node_rows));
    tiers->node_at = epx_memory_zeroed(4 * ranks, sizeof(*tiers->node_at));
    tiers->part_at = epx_memory_zeroed(ranks, sizeof(*tiers->part_at));
    tiers->home_displs = epx_memory_zeroed(2 * ranks, sizeof(*tiers->home_displs));
    tiers->areas = epx_memory_zeroed(2 * ranks, sizeof(*tiers->areas));
    tiers->tables = epx_memory_zeroed(2 * ranks, sizeof(*tiers->tables));
    EPX_FAIL_IF(!tiers->node_rows || !tiers->node_at || !tiers->part_at || !tiers->home_displs ||
                    !tiers->areas || !tiers->tables,
                EPX_ERR_NO_MEM, "no memory for %d ranks", tiers->comm->size);
    return EPX_SUCCESS;
}

/* Arrays of one element a rank or node, cut from few allocations. */
static void place_arrays(struct epx_tiers *tiers)
{
    struct epx_node_block *block = &tiers->block;
    int ranks = tiers->comm->size;

    tiers->relay_displs = tiers->home_displs + ranks;
    tiers->parts = tiers->areas + ranks;
    block->tokens = &tiers->staged->block;
    block->home_row = tiers->node_rows;
    block->home_rows = tiers->node_rows + ranks;
    block->home_at = tiers->node_at;
    block->entry = tiers->node_at + ranks;
    block->entry_rows = tiers->node_at + 2 * ranks;
    block->entry_at = tiers->node_at + 3 * ranks;
    block->home_stage = tiers->staged->home_stage;
    block->relay_stage = tiers->staged->expert_stage;
    block->area = tiers->areas;
    block->area_at = tiers->tables;
    block->area_row = tiers->tables + ranks;
    for (int r = 0; r < ranks; r++) {
        if (!tiers->window->address[r])
            continue;
        block->area[r] = tiers->window->address[r] + area_offset(ranks);
        block->area_at[r] = part_of(tiers, r)->tables;
        block->area_row[r] = part_of(tiers, r)->tables + ranks;
    }
}

int epx_tiers_create(struct epx_comm *comm, struct epx_staged *staged, struct epx_tiers **result)
{
    struct epx_tiers *tiers = epx_memory_zeroed(1, sizeof(*tiers));
    int rc = tiers ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for tiers");

    if (tiers) {
        tiers->comm = comm;
        tiers->staged = staged;
        rc = init(tiers);
    }
    rc = epx_comm_agree(comm, rc);
    if (rc == EPX_SUCCESS)
        rc = epx_node_window_create(comm, area_offset(comm->size) + (size_t)staged->stage_bytes,
                                    &tiers->window);
    if (rc != EPX_SUCCESS) {
        epx_tiers_free(tiers);
        return rc;
    }
    place_arrays(tiers);
    *result = tiers;
    return EPX_SUCCESS;
}

void epx_tiers_free(struct epx_tiers *tiers)
{
    if (!tiers)
        return;
    epx_node_window_free(tiers->comm, tiers->window);
    free(tiers->node_rows);
    free(tiers->node_at);
    free(tiers->part_at);
    free(tiers->home_displs);
    free(tiers->areas);
    free(tiers->tables);
    free(tiers);
}

struct epx_tiers *epx_tiers_of(const struct epx_request *request)
{
    return epx_transport_of(request)->tiers;
}

char *epx_tiers_area(const struct epx_tiers *tiers)
{
    return tiers->block.area[tiers->comm->rank];
}

/* The first rank of the node, from this one on, that took or filled less than value; or -1. */
static int lacks(const struct epx_tiers *tiers, int taken, uint64_t value)
{
    int size = tiers->comm->size;

    for (int i = 0, r = tiers->comm->rank; i < size; i++, r = (r + 1) % size) {
        if (!tiers->window->address[r])
            continue;
        if (epx_flag_look(taken ? &part_of(tiers, r)->taken : &part_of(tiers, r)->filled) < value)
            return r;
    }
    return -1;
}

int epx_tiers_may_fill(const struct epx_tiers *tiers, struct epx_request *request)
{
    request->waiting_for = lacks(tiers, 1, tiers->round);
    return request->waiting_for < 0;
}

int epx_tiers_all_filled(const struct epx_tiers *tiers, struct epx_request *request)
{
    request->waiting_for = lacks(tiers, 0, tiers->round);
    return request->waiting_for < 0;
}

void epx_tiers_post_filled(struct epx_tiers *tiers, const int64_t *home_at)
{
    struct part *own = part_of(tiers, tiers->comm->rank);
    size_t ranks = (size_t)tiers->comm->size;

    memcpy(own->tables, home_at, ranks * sizeof(*home_at));
    memcpy(own->tables + ranks, tiers->block.entry, ranks * sizeof(*tiers->block.entry));
    epx_flag_post(&own->filled, tiers->round);
}

void epx_tiers_post_taken(struct epx_tiers *tiers)
{
    epx_flag_post(&part_of(tiers, tiers->comm->rank)->taken, tiers->round);
}

int epx_tiers_to_relays(struct epx_tiers *tiers)
{
    return epx_staged_exchange(tiers->staged, EPX_TO_EXPERTS, epx_tiers_area(tiers),
                               tiers->home_displs, tiers->relay_displs);
}

int epx_tiers_to_homes(struct epx_tiers *tiers)
{
    struct epx_staged *staged = tiers->staged;

    epx_poison(staged->home_stage, (size_t)staged->stage_bytes);
    return epx_staged_exchange(staged, EPX_TO_HOMES, staged->expert_stage, tiers->home_displs,
                               tiers->relay_displs);
}
