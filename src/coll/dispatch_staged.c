/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dispatch_staged.c - dispatch by messages: rows are packed by rank in record order, exchanged
 * with the counts of the routing, and unpacked by the records, block by block.
 */
#include "staged.h"
#include "verbs.h"

enum { POST, AGREE, PACK, EXCHANGE };

static int begin(struct epx_staged *staged, struct epx_request *request)
{
    int weighted;

    EPX_TRY(epx_ready_agree(staged->comm, staged->ready, &weighted));
    staged->plan = request->route->plan;
    epx_staged_begin(staged, request, weighted);
    staged->home = epx_home_rows_of(request, staged->cut, weighted);
    staged->expert = epx_expert_rows_of(request, staged->cut, weighted, staged->sums);
    request->phase = PACK;
    return epx_dispatch_begin(request, weighted);
}

static int pack(struct epx_staged *staged, struct epx_request *request, int *moved)
{
    *moved = 1;
    if (!epx_staged_next_block(staged)) {
        request->complete = 1;
        return EPX_SUCCESS;
    }
    request->phase = EXCHANGE;
    EPX_TRY(staged->comm->kernels->pack_rows(staged->plan, &staged->home, &staged->block,
                                             EPX_STREAM_NULL));
    return epx_staged_to_experts(staged);
}

static int unpack(struct epx_staged *staged, struct epx_request *request)
{
    request->phase = PACK;
    return staged->comm->kernels->unpack_rows(staged->plan, &staged->expert, &staged->block,
                                              EPX_STREAM_NULL);
}

int epx_dispatch_staged(struct epx_request *request, int *moved)
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
    case PACK: return pack(staged, request, moved);
    default:
        EPX_TRY(epx_staged_done(staged, moved));
        return *moved ? unpack(staged, request) : EPX_SUCCESS;
    }
}
