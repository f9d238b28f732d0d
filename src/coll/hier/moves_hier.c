/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * moves_hier.c - dispatch, combine and their backwards where a row crosses between two nodes once,
 * block by block. Dispatch: a home packs the rows for its own node into its area and one row for
 * each other node into its stage; they arrive in their relays' areas, from where every rank of the
 * node takes what it needs. Combine: an expert's rank sums each unique row's pairs into its area; a
 * relay adds the sums of its node's ranks for the homes it serves and sends the results; a home
 * adds the parts of its own node and the sums of the others.
 */
#include "coll/hier/hier.h"
#include "coll/verbs.h"

static int pack(struct epx_request *request)
{
    struct epx_hier *hier = epx_hier_of(request);

    epx_pack_node_rows_host(hier->staged->plan, &hier->staged->home, &hier->block);
    return epx_hier_to_relays(hier);
}

/* A relay shows its node what has come. */
static int show(struct epx_request *request)
{
    struct epx_hier *hier = epx_hier_of(request);

    epx_hier_post_filled(hier, hier->block.entry_at);
    return EPX_SUCCESS;
}

static int unpack(struct epx_request *request)
{
    struct epx_hier *hier = epx_hier_of(request);

    epx_unpack_node_rows_host(hier->staged->plan, &hier->staged->expert, &hier->block);
    epx_hier_post_taken(hier);
    return EPX_SUCCESS;
}

static int sum_pairs(struct epx_request *request)
{
    struct epx_hier *hier = epx_hier_of(request);
    struct epx_block block;

    epx_hier_place_parts(hier);
    block = hier->staged->block;
    block.expert_at = hier->parts;
    epx_sum_pairs_host(hier->staged->plan, &hier->staged->expert, &block);
    epx_hier_post_filled(hier, hier->part_at);
    return EPX_SUCCESS;
}

static int sum_ranks(struct epx_request *request)
{
    struct epx_hier *hier = epx_hier_of(request);

    epx_sum_node_ranks_host(hier->staged->plan, &hier->staged->expert, &hier->block);
    return epx_hier_to_homes(hier);
}

static int sum_nodes(struct epx_request *request)
{
    struct epx_hier *hier = epx_hier_of(request);

    epx_sum_nodes_host(hier->staged->plan, &hier->staged->home, &hier->block);
    epx_hier_post_taken(hier);
    return EPX_SUCCESS;
}

int epx_move_hier(struct epx_request *request, int *moved)
{
    static const struct epx_step dispatch[EPX_BLOCK_STEPS] = {
        {epx_hier_next_block, pack}, {epx_staged_has_come, show}, {epx_hier_all_filled, unpack}};
    static const struct epx_step combine[EPX_BLOCK_STEPS] = {{epx_hier_next_block, sum_pairs},
                                                             {epx_hier_all_filled, sum_ranks},
                                                             {epx_staged_has_come, sum_nodes}};

    if (request->half == EPX_HALF_WEIGHTS && epx_verb_adds(request->call.verb))
        return epx_combine_weights(request, moved);
    if (request->phase < EPX_PHASE_VERB)
        return epx_hier_begin(request, moved);
    return epx_staged_step(request, epx_verb_adds(request->call.verb) ? combine : dispatch, moved);
}
