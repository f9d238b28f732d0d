/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * moves_staged.c - dispatch, combine and their backwards by messages, block by block. Dispatch:
 * rows are packed by rank in record order, exchanged with the counts of the routing, and unpacked
 * by the records. Combine: the sum of each unique row's pairs goes home in record order, and the
 * home adds its tokens' rows in the order of sums.
 */
#include "coll/staged/staged.h"
#include "coll/verbs.h"

static int next_block(struct epx_request *request, int *moved)
{
    struct epx_staged *staged = epx_staged_of(request);

    *moved = 1;
    request->complete = !epx_staged_has_block(staged);
    if (request->complete)
        return EPX_SUCCESS;
    epx_staged_find_block(staged);
    epx_staged_measure(staged);
    return EPX_SUCCESS;
}

static int fill(struct epx_request *request)
{
    struct epx_staged *staged = epx_staged_of(request);

    if (epx_verb_adds(request->call.verb))
        epx_sum_pairs_host(staged->plan, &staged->expert, &staged->block);
    else
        epx_pack_rows_host(staged->plan, &staged->home, &staged->block);
    return epx_staged_send(staged, epx_direction_of(request));
}

static int take(struct epx_request *request)
{
    struct epx_staged *staged = epx_staged_of(request);

    if (epx_verb_adds(request->call.verb))
        epx_sum_ranks_host(staged->plan, &staged->home, &staged->block);
    else
        epx_unpack_rows_host(staged->plan, &staged->expert, &staged->block);
    return EPX_SUCCESS;
}

static int begin(struct epx_request *request, int *moved)
{
    struct epx_staged *staged = epx_staged_of(request);
    int weighted;

    EPX_TRY(epx_staged_handshake(request, &weighted, moved));
    if (!*moved || epx_combine_splits(request, &weighted))
        return EPX_SUCCESS;
    epx_staged_begin(staged, request, staged->comm->size, weighted);
    epx_moves_begin(request, weighted);
    return EPX_SUCCESS;
}

int epx_move_staged(struct epx_request *request, int *moved)
{
    static const struct epx_step steps[EPX_BLOCK_STEPS] = {
        {next_block, NULL}, {epx_staged_may_fill, fill}, {epx_staged_has_come, take}};

    if (request->half == EPX_HALF_WEIGHTS && epx_verb_adds(request->call.verb))
        return epx_combine_weights(request, moved);
    if (request->phase < EPX_PHASE_VERB)
        return begin(request, moved);
    return epx_staged_step(request, steps, moved);
}
