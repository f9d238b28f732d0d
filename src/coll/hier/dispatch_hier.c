/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dispatch_hier.c - dispatch where a row crosses to another node once: a home packs the rows for
 * its own node into its area and one row for each other node into its stage; they arrive in their
 * relays' areas, from where every rank of the node takes what it needs, block by block.
 */
#include "coll/hier/hier.h"
#include "coll/verbs.h"

enum { FILL = EPX_PHASE_VERB, EXCHANGE, TAKE };

static int fill(struct epx_hier *hier, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = hier->staged;

    if (!epx_hier_next_block(hier, request, moved))
        return EPX_SUCCESS;
    request->phase = EXCHANGE;
    epx_pack_node_rows_host(staged->plan, &staged->home, &hier->block);
    return epx_hier_to_relays(hier);
}

static int take(struct epx_hier *hier, struct epx_request *request, int *moved)
{
    struct epx_staged *staged = hier->staged;

    if (!epx_hier_all_filled(hier, request))
        return EPX_SUCCESS;
    *moved = 1;
    request->phase = FILL;
    epx_unpack_node_rows_host(staged->plan, &staged->expert, &hier->block);
    epx_hier_post_taken(hier);
    return EPX_SUCCESS;
}

static int exchange(struct epx_hier *hier, struct epx_request *request, int *moved)
{
    EPX_TRY(epx_staged_done(hier->staged, moved));
    if (!*moved)
        return EPX_SUCCESS;
    epx_hier_post_filled(hier, hier->block.entry_at);
    request->phase = TAKE;
    return EPX_SUCCESS;
}

int epx_dispatch_hier(struct epx_request *request, int *moved)
{
    struct epx_hier *hier = epx_hier_of(request);
    int weighted;

    switch (request->phase) {
    case FILL: return fill(hier, request, moved);
    case EXCHANGE: return exchange(hier, request, moved);
    case TAKE: return take(hier, request, moved);
    default:
        EPX_TRY(epx_hier_handshake(hier, request, &weighted, moved));
        if (!*moved)
            return EPX_SUCCESS;
        epx_hier_begin(hier, request, weighted);
        epx_dispatch_begin(request, weighted);
        return EPX_SUCCESS;
    }
}
