/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_staged.c - combine by messages: the sum of each unique row's pairs goes home in record
 * order, and the home sums its tokens' rows in rank order, block by block.
 */
#include "coll/staged/staged.h"
#include "coll/verbs.h"

enum { NEXT = EPX_PHASE_VERB, SUM_PAIRS, EXCHANGE };

static int sum_pairs(struct epx_staged *staged, struct epx_request *request, int *moved)
{
    if (!epx_staged_claim(staged, EPX_TO_HOMES))
        return EPX_SUCCESS;
    *moved = 1;
    request->phase = EXCHANGE;
    epx_sum_pairs_host(staged->plan, &staged->expert, &staged->block);
    return epx_staged_send(staged, EPX_TO_HOMES);
}

static void sum_ranks(struct epx_staged *staged, struct epx_request *request)
{
    request->phase = NEXT;
    epx_sum_ranks_host(staged->plan, &staged->home, &staged->block);
}

int epx_combine_staged(struct epx_request *request, int *moved)
{
    struct epx_staged *staged = epx_staged_of(request);
    int weighted;

    if (request->half == EPX_HALF_WEIGHTS)
        return epx_combine_weights(request, moved);
    switch (request->phase) {
    case NEXT: *moved = 1; return epx_staged_next_block(staged, request, SUM_PAIRS);
    case SUM_PAIRS: return sum_pairs(staged, request, moved);
    case EXCHANGE:
        EPX_TRY(epx_staged_done(staged, moved));
        if (*moved)
            sum_ranks(staged, request);
        return EPX_SUCCESS;
    default:
        EPX_TRY(epx_staged_handshake(request, &weighted, moved));
        if (!*moved || epx_combine_splits(request, &weighted))
            return EPX_SUCCESS;
        epx_staged_begin(staged, request, staged->comm->size, weighted);
        epx_combine_begin(request, weighted);
        return EPX_SUCCESS;
    }
}
