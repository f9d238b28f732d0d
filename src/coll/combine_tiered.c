/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_tiered.c - combine where one row a node goes home: an expert's rank sums each unique
 * row's pairs into its area; a relay adds those of its node for the homes it serves and sends the
 * sums; a home adds the parts of its own node and the sums of the others, block by block.
 */
#include "coll/tiers.h"
#include "coll/verbs.h"

enum { FILL = EPX_PHASE_VERB, RELAY, EXCHANGE };

static int fill(struct epx_tiers *tiers, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = tiers->staged;
    struct epx_block block;

    if (!epx_tiers_next_block(tiers, request, moved))
        return EPX_SUCCESS;
    request->phase = RELAY;
    epx_tiers_place_parts(tiers);
    block = staged->block;
    block.expert_at = tiers->parts;
    EPX_TRY(tiers->comm->kernels->sum_pairs(staged->plan, &staged->expert, &block,
                                            EPX_STREAM_NULL));
    epx_tiers_post_filled(tiers, tiers->part_at);
    return EPX_SUCCESS;
}

static int relay(struct epx_tiers *tiers, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = tiers->staged;

    if (!epx_tiers_all_filled(tiers, request))
        return EPX_SUCCESS;
    *moved = 1;
    request->phase = EXCHANGE;
    EPX_TRY(tiers->comm->kernels->sum_node_ranks(staged->plan, &staged->expert, &tiers->block,
                                                 EPX_STREAM_NULL));
    return epx_tiers_to_homes(tiers);
}

static int exchange(struct epx_tiers *tiers, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = tiers->staged;

    EPX_TRY(epx_staged_done(staged, moved));
    if (!*moved)
        return EPX_SUCCESS;
    request->phase = FILL;
    EPX_TRY(tiers->comm->kernels->sum_nodes(staged->plan, &staged->home, &tiers->block,
                                            EPX_STREAM_NULL));
    epx_tiers_post_taken(tiers);
    return EPX_SUCCESS;
}

int epx_combine_tiered(struct epx_request *request, int *moved)
{
    struct epx_tiers *tiers = epx_tiers_of(request);
    int weighted;

    switch (request->phase) {
    case FILL: return fill(tiers, request, moved);
    case RELAY: return relay(tiers, request, moved);
    case EXCHANGE: return exchange(tiers, request, moved);
    default:
        EPX_TRY(epx_tiers_begin(tiers, request, &weighted, moved));
        return *moved ? epx_combine_begin(request, weighted) : EPX_SUCCESS;
    }
}
