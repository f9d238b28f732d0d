/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dispatch_tiered.c - dispatch where a row crosses to another node once: a home packs the rows for
 * its own node into its area and one row for each other node into its stage; they arrive in their
 * relays' areas, from where every rank of the node takes what it needs, block by block.
 */
#include "coll/tiers.h"
#include "coll/verbs.h"

enum { FILL = EPX_PHASE_VERB, EXCHANGE, TAKE };

static int fill(struct epx_tiers *tiers, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = tiers->staged;

    if (!epx_tiers_next_block(tiers, request, moved))
        return EPX_SUCCESS;
    request->phase = EXCHANGE;
    EPX_TRY(tiers->comm->kernels->pack_node_rows(staged->plan, &staged->home, &tiers->block,
                                                 EPX_STREAM_NULL));
    return epx_tiers_to_relays(tiers);
}

static int take(struct epx_tiers *tiers, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = tiers->staged;

    if (!epx_tiers_all_filled(tiers, request))
        return EPX_SUCCESS;
    *moved = 1;
    request->phase = FILL;
    EPX_TRY(tiers->comm->kernels->unpack_node_rows(staged->plan, &staged->expert, &tiers->block,
                                                   EPX_STREAM_NULL));
    epx_tiers_post_taken(tiers);
    return EPX_SUCCESS;
}

static int exchange(struct epx_tiers *tiers, struct epx_request *request, int *moved)
{
    EPX_TRY(epx_staged_done(tiers->staged, moved));
    if (!*moved)
        return EPX_SUCCESS;
    epx_tiers_post_filled(tiers, tiers->block.entry_at);
    request->phase = TAKE;
    return EPX_SUCCESS;
}

int epx_dispatch_tiered(struct epx_request *request, int *moved)
{
    struct epx_tiers *tiers = epx_tiers_of(request);
    int weighted;

    switch (request->phase) {
    case FILL: return fill(tiers, request, moved);
    case EXCHANGE: return exchange(tiers, request, moved);
    case TAKE: return take(tiers, request, moved);
    default:
        EPX_TRY(epx_tiers_begin(tiers, request, &weighted, moved));
        return *moved ? epx_dispatch_begin(request, weighted) : EPX_SUCCESS;
    }
}
