/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_staged.c - combine by messages: the sum of each unique row's pairs goes home in record
 * order, and the home sums its tokens' rows in rank order, block by block.
 */
#include "staged.h"
#include "verbs.h"

enum { POST, AGREE, SUM_PAIRS, EXCHANGE };

static int begin(struct epx_staged *staged, struct epx_request *request)
{
    int weighted;

    EPX_TRY(epx_ready_agree(staged->comm, staged->ready, &weighted));
    staged->plan = request->route->plan;
    epx_staged_begin(staged, request, weighted);
    staged->home = epx_home_rows_of(request, staged->cut, weighted);
    staged->expert = epx_expert_rows_of(request, staged->cut, weighted, staged->sums);
    request->phase = SUM_PAIRS;
    return epx_combine_begin(request, weighted);
}

static int sum_pairs(struct epx_staged *staged, struct epx_request *request, int *moved)
{
    *moved = 1;
    if (!epx_staged_next_block(staged)) {
        request->complete = 1;
        return EPX_SUCCESS;
    }
    request->phase = EXCHANGE;
    EPX_TRY(staged->comm->kernels->sum_pairs(staged->plan, &staged->expert, &staged->block,
                                             EPX_STREAM_NULL));
    return epx_staged_to_homes(staged);
}

static int sum_ranks(struct epx_staged *staged, struct epx_request *request)
{
    request->phase = SUM_PAIRS;
    return staged->comm->kernels->sum_ranks(staged->plan, &staged->home, &staged->block,
                                            EPX_STREAM_NULL);
}

int epx_combine_staged(struct epx_request *request, int *moved)
{
    struct epx_staged *staged = epx_staged_of(request);

    switch (request->phase) {
    case POST:
        EPX_TRY(epx_routing_error(request));
        request->phase = AGREE;
        return epx_staged_post_ready(staged, request);
    case AGREE:
        EPX_TRY(epx_staged_done(staged, moved));
        return *moved ? begin(staged, request) : EPX_SUCCESS;
    case SUM_PAIRS: return sum_pairs(staged, request, moved);
    default:
        EPX_TRY(epx_staged_done(staged, moved));
        return *moved ? sum_ranks(staged, request) : EPX_SUCCESS;
    }
}
