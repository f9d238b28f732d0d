/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_hier.c - combine where a home gets one row from each other node: an expert's rank sums
 * each unique row's pairs into its area; a relay adds the sums of its node's ranks for the homes it
 * serves and sends the results; a home adds the parts of its own node and the sums of the others,
 * block by block.
 */
#include "coll/hier/hier.h"
#include "coll/verbs.h"

enum { FILL = EPX_PHASE_VERB, RELAY, EXCHANGE };

static int fill(struct epx_hier *hier, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = hier->staged;
    struct epx_block block;

    if (!epx_hier_next_block(hier, request, moved))
        return EPX_SUCCESS;
    request->phase = RELAY;
    epx_hier_place_parts(hier);
    block = staged->block;
    block.expert_at = hier->parts;
    epx_sum_pairs_host(staged->plan, &staged->expert, &block);
    epx_hier_post_filled(hier, hier->part_at);
    return EPX_SUCCESS;
}

static int relay(struct epx_hier *hier, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = hier->staged;

    if (!epx_hier_all_filled(hier, request))
        return EPX_SUCCESS;
    *moved = 1;
    request->phase = EXCHANGE;
    epx_sum_node_ranks_host(staged->plan, &staged->expert, &hier->block);
    return epx_hier_to_homes(hier);
}

static int exchange(struct epx_hier *hier, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = hier->staged;

    EPX_TRY(epx_staged_done(staged, moved));
    if (!*moved)
        return EPX_SUCCESS;
    request->phase = FILL;
    epx_sum_nodes_host(staged->plan, &staged->home, &hier->block);
    epx_hier_post_taken(hier);
    return EPX_SUCCESS;
}

int epx_combine_hier(struct epx_request *request, int *moved)
{
    struct epx_hier *hier = epx_hier_of(request);
    int weighted;

    if (request->half == EPX_HALF_WEIGHTS)
        return epx_combine_weights(request, moved);
    switch (request->phase) {
    case FILL: return fill(hier, request, moved);
    case RELAY: return relay(hier, request, moved);
    case EXCHANGE: return exchange(hier, request, moved);
    default:
        EPX_TRY(epx_hier_handshake(hier, request, &weighted, moved));
        if (!*moved || epx_combine_splits(request, &weighted))
            return EPX_SUCCESS;
        epx_hier_begin(hier, request, weighted);
        epx_combine_begin(request, weighted);
        return EPX_SUCCESS;
    }
}
